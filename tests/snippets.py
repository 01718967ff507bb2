"""The Python blocks of a page of the documentation, to be run one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"


def run_page(name: str, **given: Any) -> int:
    """Run every block of docs/`name` in one namespace; how many there were."""
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / name).read_text(), re.M | re.S)
    namespace = dict(given)
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{name}, block {number}", "exec"), namespace)
    return len(blocks)
