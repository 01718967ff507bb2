"""The public surface: names found when asked for, none hides a subpackage."""

from __future__ import annotations

import importlib
import io
import pkgutil
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

import pytest

import regimekit as rk

ROOT = Path(__file__).resolve().parents[1]
# Words that the comments, docstrings and messages of the source avoid, with the word to use.
AVOIDED = {
    r"(un)?told": "with default settings, with known noise variance, suggested, distinguished",
    r"held": "covered, stored, down-weighted",
    r"honest(ly)?": "calibrated",
    r"mend(s|ed|ing)?": "fix, correct",
    r"anew": "again",
    r"at rest": "inactive",
    r"awake": "active",
    r"reads? (the )?regimes?|regimes (are|is) read": "infer regimes",
    r"doubt(s|ed|ful|ing)?|in doubt": "flag as a possible outlier",
    r"beforehand": "prior",
    r"is not possible here": "is not allowed",
    r"beyond all (measure|use)": "exceeds, with the limit",
    r"says? who": "set the active experts",
    r"daily but": "daily except",
    r"believe[sd]?|believed": "expect, accept",
    r"nobody|somebody": "the subject of the sentence",
    r"garble[sd]?": "invalid",
}
# Where a word has its technical or ordinary meaning.
ALLOWED = {("server/storage/database.py", "held"), ("server/storage/outbox.py", "nobody|somebody")}
HEAVY = {"numpy", "scipy", "narwhals", "duckdb", "pandas", "matplotlib", "pooch", "optuna"}


def modules_after(code: str) -> set[str]:
    """Top-level modules that are loaded in a fresh interpreter after `code`."""
    show = "import sys; print('\\n' + ' '.join({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_import_loads_nothing_heavy() -> None:
    assert not modules_after("import regimekit") & HEAVY


def test_package_citation_and_project_have_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert citation is not None
    assert rk.__version__ == citation[1] == project


def test_every_public_name_is_there_and_listed() -> None:
    for name in rk.__all__:
        assert getattr(rk, name) is not None
    assert set(rk.__all__) <= set(dir(rk))
    with pytest.raises(AttributeError, match="br_ihm'"):
        _ = rk.br_ihm  # type: ignore[attr-defined]


@pytest.mark.parametrize("first", ["regimekit.core.registry", "regimekit.metrics", "regimekit"])
def test_names_work_whatever_is_imported_first(first: str) -> None:
    code = f"import {first}, regimekit as rk\nassert 'ihmm' in rk.models() and callable(rk.tune)"
    assert "regimekit" in modules_after(code + "\nfrom regimekit import br_ihmm, data, models")


def test_no_public_name_hides_a_submodule() -> None:
    for module in pkgutil.iter_modules(rk.__path__):
        if module.name in rk.__all__:
            assert getattr(rk, module.name) is importlib.import_module(f"regimekit.{module.name}")


def prose(file: Path) -> list[tuple[int, str]]:
    """Comments and strings of a source file with their lines, without code in them."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        name = tokenize.tok_name[token.type]
        if name not in ("COMMENT", "STRING", "FSTRING_MIDDLE"):
            continue
        for i, line in enumerate(token.string.splitlines()):
            if not line.lstrip().startswith((">>>", "...")):
                # Names of arguments and quoted names are code.
                text = re.sub(r"`[^`]*`|\{[^}]*\}|^ *[\w, ]+: |^[rbf]*[\"']\w+[\"']$", "", line)
                found.append((token.start[0] + i, text))
    return found


def test_the_source_is_in_plain_english() -> None:
    source = ROOT / "src" / "regimekit"
    found = []
    for file in sorted(source.rglob("*.py")):
        name = file.relative_to(source).as_posix()
        for line, text in prose(file):
            for word, instead in AVOIDED.items():
                if re.search(rf"\b({word})\b", text, re.I) and (name, word) not in ALLOWED:
                    found.append(f"{name}:{line}: {text.strip()[:80]} (instead: {instead})")
    assert not found, "\n".join(found)
