"""The documentation is true: every snippet runs, links lead somewhere, notebooks are the pages."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from matplotlib import pyplot as plt

from docs import notebooks, versions
from docs.pages import DOCS, ROOT, RUNS, blocks, looked_up, pages, run_page

ELSEWHERE = {  # pages whose surroundings another test makes
    "docs/spark.md": "tests/integrations/test_spark.py",
    "docs/serve.md": "tests/server/test_server_docs.py",
}
NEEDS = {
    "docs/adapters.md": ("river", "sklearn", "sktime", "skpro"),
    "docs/comparison.md": ("river",),
}
WITH_CODE = [p for p in pages() if any(b.language in RUNS and not b.excuse for b in blocks(p))]


@pytest.fixture
def quiet_pictures() -> Iterator[None]:
    before = plt.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


@pytest.mark.parametrize("page", [p for p in WITH_CODE if p not in ELSEWHERE])
def test_the_snippets_of_a_page_run(page: str, tmp_path: Path, quiet_pictures: None) -> None:
    for module in NEEDS.get(page, ()):
        pytest.importorskip(module)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run_page(page, tmp_path) > 0


def test_pages_that_are_run_elsewhere_are() -> None:
    for page, test in ELSEWHERE.items():
        assert f'run_page("{page}"' in (ROOT / test).read_text()


def test_every_block_is_run_or_states_why_not() -> None:
    for page in pages():
        for block in blocks(page):
            assert block.language, f"{block.place}: a fence without a language"
            if block.language not in RUNS:
                assert block.language in ("text", "json", "csv"), block.place
            if "not run" in block.code.lower():
                assert len(block.excuse) > 15, f"{block.place}: say why it is not run"


def test_what_is_looked_up_must_exist() -> None:
    block = blocks("README.md")[0]
    assert looked_up("make demo  # once", block) and looked_up("pip install '.[dev]'", block)
    assert not looked_up("regimekit models", block)
    for line in ("make coffee", "pip install 'regimekit[coffee]'"):
        with pytest.raises(AssertionError, match="coffee"):
            looked_up(line, block)


def test_a_snippet_that_fails_names_its_place(tmp_path: Path) -> None:
    from docs import pages as module

    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```sh\nfalse\n```\n")
    block = module.Block("page.md", 4, "sh", "false\n")
    with pytest.raises(AssertionError, match=r"page\.md, line 4: exit code 1"):
        module.run_shell(block, tmp_path)


def test_links_of_readme_and_pages_lead_somewhere() -> None:
    for page in [*pages(), "CONTRIBUTING.md", "CHANGELOG.md"]:
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if not target.startswith("http"):
                assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text()
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).as_posix()
        assert name in menu or name.startswith("reproduction/"), f"{name} is not in mkdocs.yml"


def test_the_site_is_built_without_a_broken_link(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    api = (tmp_path / "api.html").read_text()
    assert 'id="regimekit.ensemble.auto"' in api and "Predict and update along a stream" in api
    assert not re.search(r'(src|href)="https?://[^"]+\.(js|css|woff2?)"', api)  # no network


def test_the_notebooks_are_the_pages() -> None:
    written = {path.stem: path.read_text() for path in notebooks.FOLDER.glob("*.ipynb")}
    made = {page.stem: notebooks.notebook(page) for page in notebooks.recipes()}
    assert written == made, "write them again: python -m docs.notebooks"
    for name, text in made.items():
        cells = json.loads(text)["cells"]
        code = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        for block in blocks(f"docs/cookbook/{name}.md"):
            assert block.excuse or block.code.strip() in code, block.place
        prose = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        for target in re.findall(r"\]\((?!http)([^)#]+)", prose):
            assert (notebooks.FOLDER / target).exists(), f"{name} links to {target}"


def _defines(name: str) -> bool:
    """Whether the source of the package defines a dotted name such as `regimekit.a.b.Class.f`."""
    parts = name.split(".")
    for depth in range(len(parts), 0, -1):
        file = (ROOT / "src").joinpath(*parts[:depth]).with_suffix(".py")
        if file.exists():
            nodes: list[ast.AST] = [ast.parse(file.read_text())]
            for part in parts[depth:]:
                inside = [child for node in nodes for child in ast.iter_child_nodes(node)]
                nodes = [node for node in inside if getattr(node, "name", None) == part]
            return bool(nodes)
    return False


def test_the_map_of_the_paper_names_code_that_exists() -> None:
    named = re.findall(r"`(regimekit[.\w]+)`", (ROOT / "docs/paper-map.md").read_text())
    assert len(named) > 30
    assert [name for name in named if not _defines(name)] == []
    assert not _defines("regimekit.ihmm.hdp.antoniac")


def test_a_site_has_several_versions(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    (repository / "docs").mkdir(parents=True)

    def git(*words: str) -> None:
        who = ("-c", "user.name=me", "-c", "user.email=me@localhost", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, "-C", str(repository), *words], check=True)

    git("init", "--quiet")
    (repository / "mkdocs.yml").write_text("site_name: pages\ntheme: mkdocs\n")
    for tag, text in (("v0.3.0", "the third"), ("v0.4.0", "the fourth")):
        (repository / "docs" / "index.md").write_text(f"# Pages\n\n{text} version\n")
        git("add", "--all")
        git("commit", "--quiet", "--message", tag)
        git("tag", tag)
    out = tmp_path / "site"
    out.mkdir()
    assert versions.build(out, ["v0.3.0"], repository) == ["0.3.0"]
    assert versions.build(out, ["v0.4.0"], repository) == ["0.4.0"]
    assert "the third version" in (out / "0.3.0" / "index.html").read_text()
    assert "the fourth version" in (out / "0.4.0" / "index.html").read_text()
    listed = json.loads((out / "versions.json").read_text())
    assert [entry["version"] for entry in listed] == ["0.4.0", "0.3.0"]
    assert "0.4.0/index.html" in (out / "index.html").read_text()
