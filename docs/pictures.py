"""Draw the figures of the pages: python -m docs.pictures [PAGE ..]

An image right below a block of Python is the last figure of that block.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import matplotlib

from docs.pages import ROOT, Block, blocks, pages, run_page


def draw(page: str) -> list[Path]:
    """Run a page and save its figures; return the files written."""
    from matplotlib import pyplot as plt

    written: list[Path] = []

    def keep(block: Block) -> None:
        if block.picture:
            path = ((ROOT / page).parent / block.picture).resolve()
            path.parent.mkdir(parents=True, exist_ok=True)
            plt.gcf().savefig(path, dpi=110)
            written.append(path)
        plt.close("all")

    with tempfile.TemporaryDirectory() as folder:
        run_page(page, Path(folder), keep)
    return written


def main() -> None:
    """Draw the figures of the given pages, or of all pages that have any."""
    matplotlib.use("Agg")
    drawn = [p for p in pages() if any(b.picture and not b.excuse for b in blocks(p))]
    for page in sys.argv[1:] or drawn:
        for path in draw(page):
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
