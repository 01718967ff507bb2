"""Hook of mkdocs: the page of release notes is CHANGELOG.md of the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File


def on_files(files: Any, config: Any) -> Any:
    """Add the page; links to pages of the site are kept, others become text."""
    text = (Path(config.docs_dir).parent / "CHANGELOG.md").read_text(encoding="utf-8")
    text = re.sub(r"\[([^\]]+)\]\((?!docs/|https?:)[^)]*\)", r"\1", text).replace("](docs/", "](")
    files.append(File.generated(config, "release-notes.md", content=text))
    return files
