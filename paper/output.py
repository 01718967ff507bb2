"""The files of each item (JSON, Markdown and a picture), and an index of all items."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import regimekit
from paper import store
from paper.parts import Part, code_state
from paper.probes import PROBES
from paper.streams import SIGNAL_SD
from paper.summary import summary
from paper.tables import Item, Made, Results
from regimekit import plotting as plot
from regimekit.core.exceptions import RegimekitError
from regimekit.core.registry import REGISTRY

TARGETS = "targets"  # the item whose table is in the index too
_NOTE = ("<!-- note: begin -->", "<!-- note: end -->")
_PACKAGES = ("numpy", "scipy")
_QUICK = (
    "Made with `--quick`: few rows, few particles, one run. It shows that everything runs; "
    "its numbers are not results."
)


class Written(NamedTuple):
    """The files of an item, and its gaps."""

    name: str
    runs: int
    absent: dict[str, str]  # reasons by model and stream
    figure: str  # its file name, or why there is none


def write(item: Item, results: Results, parts: Sequence[Part], out: Path) -> Written:
    """Write the files of an item."""
    made = item.make(results)
    figure, drawn = _draw(item, made, out)
    groups = _groups(results, parts)
    content = {
        "name": item.name,
        "title": item.title,
        "source": item.source,
        "note": item.note,
        "quick": results.plan.quick,
        "tables": [table.to_json() for table in made.tables],
        "figure": figure if drawn else None,
        "figure_absent": "" if drawn else figure,
        "caption": made.caption,
        "variants": groups,
        "sources": results.sources(parts),
        "confirmed": results.confirmed(parts),
        "versions": versions(),
        "signal_sd": SIGNAL_SD,
    }
    text = json.dumps(_plain(content), indent=1, ensure_ascii=False) + "\n"
    store.write(out / f"{item.name}.json", text.encode())
    body = [table.markdown() for table in made.tables]
    section = _section(content, body, groups)
    store.write(out / f"{item.name}.md", f"# {item.title}\n\n{section}".encode())
    runs = sum(len(group["seeds"]) for group in groups)
    reasons = {f"{g['model']} on {g['stream']}": g["absent"] for g in groups if g["absent"]}
    return Written(item.name, runs, reasons, figure)


def write_index(out: Path) -> Path:
    """Write a page with links to all items in a folder, and with the table of targets.

    A note between the two marks of an earlier index is kept.

    Returns:
        The page.
    """
    from paper.catalogue import ITEMS

    path = out / "index.md"
    found = [name for name in ITEMS if (out / f"{name}.json").exists()]

    def old(name: str) -> bool:
        page = out / f"{name}.json"
        return page.exists() and outdated(json.loads(page.read_text())["sources"])

    parts = ["# Reproduction", summary(out, old), _note(path), _preface(out, found)]
    if TARGETS in found:
        parts.append("#" + (out / f"{TARGETS}.md").read_text().strip())
    store.write(path, ("\n\n".join(part for part in parts if part) + "\n").encode())
    return path


def _note(index: Path) -> str:
    """Return the note between the marks, with the marks, or ""."""
    page = index.read_text() if index.exists() else ""
    if _NOTE[0] not in page or _NOTE[1] not in page:
        return ""
    return page[page.index(_NOTE[0]) : page.index(_NOTE[1]) + len(_NOTE[1])]


def versions() -> dict[str, Any]:
    """Return the versions of the packages that computed the numbers."""
    found: dict[str, Any] = {
        "regimekit": regimekit.__version__,
        "python": platform.python_version(),
    }
    found |= {name: metadata.version(name) for name in _PACKAGES}
    return found | {"machine": platform.machine(), "cores": os.cpu_count()}


def _draw(item: Item, made: Made, out: Path) -> tuple[str, bool]:
    """Return the file name of the figure, or why there is none, and whether there is one."""
    if made.draw is None:
        return "", False
    path = out / f"{item.name}.png"
    temporary = path.with_name(f".{path.name}.part.png")  # replaced atomically
    try:
        plot.save(made.draw(), temporary)
        os.replace(temporary, path)
    except RegimekitError as error:
        return f"not drawn: {error}", False
    return f"{item.name}.png", True


def _groups(results: Results, parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the variants that were run: settings, and the seeds with an outcome."""
    groups: dict[str, dict[str, Any]] = {}
    for part in parts:
        shared: dict[str, Any] = {
            "stream": part.stream,
            "model": part.model,
            "settings": part.settings,
        }
        if part.stream == "electricity":
            shared |= {"degree": part.degree, "rows": part.rows}
        group = groups.setdefault(
            json.dumps(shared, sort_keys=True),
            {**shared, "rows": part.rows, "seeds": [], "absent": ""},
        )
        if reason := results.why_not(part):
            group["absent"] = reason
        else:
            group["seeds"].append(part.seed)
    return list(groups.values())


def _section(content: dict[str, Any], tables: list[str], groups: list[dict[str, Any]]) -> str:
    """Return the page of an item below its title."""
    sentences = [f"Source: {content['source']}.", _runs(groups), _confirmed(content["confirmed"])]
    parts = [" ".join(filter(None, sentences))]
    if content["quick"] and groups:
        parts.append(f"**{_QUICK}**")
    parts += tables
    if content["figure"]:
        parts.append(f"![{content['title']}]({content['figure']})")
        parts.append(content["caption"])
    elif content["figure_absent"]:
        parts.append(f"Figure {content['figure_absent']}")
    parts.append(f"**Notes.** {content['note']}")
    return "\n\n".join(parts) + "\n"


def _runs(groups: list[dict[str, Any]]) -> str:
    if not groups:
        return "No model is run for it."
    counts = sorted({len(group["seeds"]) for group in groups})
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Runs done per variant: {runs}."


def _confirmed(found: Sequence[str]) -> str:
    """Return which runs replays have carried over, as `model:made:state`."""
    if not found:
        return ""
    origins = ["{} (made by {}, confirmed for {})".format(*one.split(":")) for one in found]
    return (
        "Made by an older state of the source, and confirmed for the present one by replays of the "
        f"first seeds, times excepted: runs of {', '.join(origins)}."
    )


def _preface(out: Path, names: Sequence[str]) -> str:
    contents = [json.loads((out / f"{name}.json").read_text()) for name in names]
    made_with = sorted({_versions_line(content["versions"]) for content in contents})
    lines = [
        "For each table and figure of the paper: what it prints, and ours in five columns. Under "
        "the paper's rule with the settings it prints; under its rule, tuned; the first and the "
        "second edition of our rule, tuned; and with default settings. Every model and rule is "
        "tuned by the same search (`hyperparameters` states it and its exceptions), on rows that "
        "the tables do not "
        "score: of a real series only the rows after the training part count, and a generated "
        "stream is tuned on seeds that no table uses. A cell is mean ± standard deviation over "
        "seeds (n runs done); seeds count from 0 and, with all settings, are in the JSON file of "
        "the same name, and every run is a line of a CSV file in the folder `runs`. A "
        "cell without a result contains the reason.",
        "Made with " + "; ".join(made_with) + ".",
    ]
    if older := [f"`{content['name']}`" for content in contents if outdated(content["sources"])]:
        lines.append(
            f"Made by an older state of the source, and so to be made again: {', '.join(older)}."
        )
    if carried := [f"`{content['name']}`" for content in contents if content.get("confirmed")]:
        lines.append(
            "Some runs were made by an older state of the source and confirmed by replays; each "
            f"page lists them: {', '.join(carried)}."
        )
    if small := [f"`{content['name']}`" for content in contents if _small_signal(content)]:
        lines.append(
            "Made with the earlier synthetic stream, whose signal is ten times smaller "
            f"([protocol](protocol.md)), and so to be made again: {', '.join(small)}."
        )
    if any(content["quick"] for content in contents):
        lines.append(f"**{_QUICK}**")
    items = [f"- [{c['title']}]({c['name']}.md) (`{c['name']}`)" for c in contents]
    return "\n\n".join([*lines, "\n".join(items)])


def _small_signal(content: dict[str, Any]) -> bool:
    """Return whether a page has runs on the earlier synthetic stream, whose signal is not 100."""
    streams = {group["stream"] for group in content["variants"]}
    return "synthetic" in streams and content.get("signal_sd") != SIGNAL_SD


def outdated(sources: Sequence[str]) -> bool:
    """Return whether any of the models or probes has changed since (`model:state`).

    Args:
        sources: models or probes, with the state that made their runs.
    """
    for source in sources:
        name, _, state = source.partition(":")
        asked = [Part(name, "")] if name in PROBES else []  # `auto` is a probe and a model
        asked += [Part("", name)] if name in REGISTRY else []
        if state not in [code_state(part) for part in asked]:
            return True
    return False


def _versions_line(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in found.items())


def _plain(value: Any) -> Any:
    """Return JSON without NaN: numbers that are not finite are null."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
