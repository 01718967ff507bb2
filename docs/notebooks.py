"""Write the pages of the cookbook as notebooks to examples/: python -m docs.notebooks

Prose becomes Markdown cells and code becomes code cells. Figures are left out, because the notebook
draws them. Nothing is executed: the tests run the pages and check that the notebooks agree.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from docs.pages import DOCS, ROOT, RUNS

FOLDER = ROOT / "examples"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
_PICTURE = re.compile(r"^!\[[^\]]*\]\([^)]+\)\n?", re.M)
_LINK = re.compile(r"\]\((?!http)([^)]+)\)")


def recipes() -> list[Path]:
    """Return the pages that become notebooks."""
    return sorted(p for p in (DOCS / "cookbook").glob("*.md") if p.name != "README.md")


def notebook(page: Path) -> str:
    """Return a page as the text of a notebook."""
    cells: list[dict[str, Any]] = []
    text, last = page.read_text(), 0
    for match in _FENCE.finditer(text):
        _prose(cells, text[last : match.start()], page)
        last = match.end()
        if match[1] in RUNS:
            _code(cells, match[1], match[2])
        else:
            _prose(cells, match[0], page)
    _prose(cells, text[last:], page)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _prose(cells: list[dict[str, Any]], text: str, page: Path) -> None:
    """Append a Markdown cell with links relative to examples/, unless the text is empty."""
    here = page.parent.relative_to(ROOT).as_posix()

    def moved(link: re.Match[str]) -> str:
        return f"](../{posixpath.normpath(posixpath.join(here, link[1]))})"

    prose = _LINK.sub(moved, _PICTURE.sub("", text)).strip()
    if prose:
        cells.append({"cell_type": "markdown", "metadata": {}, "source": _lines(prose)})


def _code(cells: list[dict[str, Any]], language: str, code: str) -> None:
    """Append a code cell, or a Markdown cell if the tests do not run the code."""
    if code.startswith("# Not run by the tests"):
        prose = f"```{language}\n{code}```"
        cells.append({"cell_type": "markdown", "metadata": {}, "source": _lines(prose)})
        return
    source = code.strip() if language == "python" else "%%bash\n" + code.strip()
    cells.append(
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": _lines(source),
        }
    )


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Write the notebook of every recipe."""
    FOLDER.mkdir(exist_ok=True)
    for page in recipes():
        path = FOLDER / f"{page.stem}.ipynb"
        path.write_text(notebook(page))
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
