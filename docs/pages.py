"""Find and run the code of the documentation pages.

The tests run the fenced blocks of `python` and `sh` of a page from top to bottom: the
Python blocks of a page share one namespace, all blocks share one folder. A block that cannot be run
states the reason in its first line:

    # Not run by the tests: it never ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
RUNS = ("python", "sh")
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)
_EXCUSE = re.compile(r"# Not run by the tests: (.+)")
_PICTURE = re.compile(r"\s*!\[[^\]]*\]\(([^)]+\.png)\)")


class Block(NamedTuple):
    """A fenced block of a page.

    Attributes:
        page: relative to the top folder.
        line: line of the page where the code begins.
        language: language of the fence.
        code: without the fences.
        picture: the file shown right below the block, relative to its page, or "".
    """

    page: str
    line: int
    language: str
    code: str
    picture: str = ""

    @property
    def excuse(self) -> str:
        """The reason why it is not run, or ""."""
        found = _EXCUSE.match(self.code)
        return found[1] if found else ""

    @property
    def place(self) -> str:
        return f"{self.page}, line {self.line}"


def pages() -> list[str]:
    """Return README and every page of the documentation that is not generated."""
    written = [p for p in DOCS.rglob("*.md") if "reproduction" not in p.parts]
    return ["README.md", *sorted(str(p.relative_to(ROOT)) for p in written)]


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = (ROOT / page).read_text()
    found = []
    for match in _FENCE.finditer(text):
        below = _PICTURE.match(text, match.end())
        line = text.count("\n", 0, match.start(2)) + 1
        found.append(Block(page, line, match[1], match[2], below[1] if below else ""))
    return found


def run_page(
    page: str, folder: Path, after: Callable[[Block], None] = lambda block: None, **given: Any
) -> int:
    """Run the blocks of a page inside `folder`; return how many were run.

    Args:
        page: relative to the top folder.
        folder: working directory of the blocks; they may write there.
        after: function that is called after each block.
        **given: names that the Python blocks may use.
    """
    namespace: dict[str, Any] = {"__name__": "__main__", **given}
    chosen = [b for b in blocks(page) if b.language in RUNS and not b.excuse]
    with contextlib.chdir(folder):
        for block in chosen:
            if block.language == "python":
                source = "\n" * (block.line - 1) + block.code  # so that errors name the page's line
                exec(compile(source, str(ROOT / page), "exec"), namespace)
            else:
                run_shell(block, folder)
            after(block)
    return len(chosen)


def run_shell(block: Block, folder: Path) -> None:
    """Run the commands of a block; `make` and `pip install` are only checked."""
    lines = [line for line in block.code.splitlines() if not looked_up(line, block)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        raise AssertionError(
            f"{block.place}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr}"
        )


def looked_up(line: str, block: Block) -> bool:
    """Return whether a line is `make` or `pip install`; their targets and extras must exist."""
    words = line.split("#")[0].replace("'", "").split()
    if words[:1] == ["make"]:
        rules = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
        unknown = set(words[1:]) - set(rules)
    elif words[:2] == ["pip", "install"]:
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = re.findall(r"regimekit\[([\w,]+)\]", line)
        asked = {name for group in extras for name in group.split(",")}
        unknown = asked - set(known["optional-dependencies"])
    else:
        return False
    if unknown:
        raise AssertionError(f"{block.place}: there is no {', '.join(sorted(unknown))}")
    return True
