"""Build the site of several versions: python -m docs.versions OUT REVISION ..

Each revision (a tag or a branch) is built from its own files into OUT/NAME, the newest one first in
the list. The theme's selector reads OUT/versions.json; OUT/index.html leads to the first revision.
Nothing is fetched from elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

_REDIRECT = '<!doctype html><meta http-equiv="refresh" content="0; url={}/index.html">\n'


def build(out: Path, revisions: list[str], repository: Path) -> list[str]:
    """Build the site of each revision and return their names.

    Args:
        out: folder to write; versions that are there already and not named stay listed.
        revisions: tags or branches, newest first.
        repository: folder of the git repository.
    """
    names = [revision.removeprefix("v") for revision in revisions]
    for revision, name in zip(revisions, names, strict=True):
        _build_one(revision, out.absolute() / name, repository)
    listing = out / "versions.json"
    before = json.loads(listing.read_text()) if listing.exists() else []
    kept = [entry["version"] for entry in before if entry["version"] not in names]
    entries = [{"version": name, "title": name, "aliases": []} for name in [*names, *kept]]
    listing.write_text(json.dumps(entries, indent=1) + "\n")
    (out / "index.html").write_text(_REDIRECT.format(entries[0]["version"]))
    return names


def _build_one(revision: str, out: Path, repository: Path) -> None:
    command = ["git", "-C", str(repository), "archive", revision]
    content = subprocess.run(command, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(content)) as archive:
            archive.extractall(folder, filter="data")
        command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(out)]
        quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
        subprocess.run(command, check=True, cwd=folder, env=quiet)


def main() -> None:
    """Build the versions named on the command line."""
    if len(sys.argv) < 3:
        raise SystemExit("Usage: python -m docs.versions OUT REVISION ..")
    out, *revisions = sys.argv[1:]
    print(*build(Path(out), revisions, Path(__file__).parent.parent), sep="\n")


if __name__ == "__main__":
    main()
