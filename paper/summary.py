"""The first lines of the index: which results are reproduced, and which models are better.

Every sentence is made from the JSON files of the pages that it links; a sentence whose page does
not exist is left out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

CLOSE = 0.1  # a number within a tenth of the printed one counts as reproduced
_PRINTED, _OURS = "paper's rule, printed settings", "second edition or no rule, tuned"
_BASELINE = "paper's rule, printed settings, R from the baselines"
# Page, stream, model, measure, and whether lower is better.
_CLAIMS = (
    ("forecast_real", "electricity", "br_ihmm", "RMSE", True),
    ("welllog_regimes", "well_log", "br_ihmm", "PPV, all rows (a search saw the first)", False),
    ("welllog_regimes", "well_log", "br_ihmm", "TPR, all rows (a search saw the first)", False),
)


def summary(out: Path, old: Callable[[str], bool]) -> str:
    """The lines as a Markdown list; empty if no page is there.

    Args:
        out: folder of the pages.
        old: whether the page of a name was made by an older state of the source.
    """
    protocol = _content(out, "protocol")
    lines = [*_scale(protocol), *_readings(protocol), *_claims(out), *_beam(protocol)]
    lines += [*_ahead(_content(out, "ahead")), *_objective(_content(out, "objective"))]
    lines += _targets(_content(out, "targets"))
    return "\n".join(f"- {_marked(line, old)}" for line in lines)


def _marked(line: str, old: Callable[[str], bool]) -> str:
    """Return the line with a remark at links to pages that an older source made."""
    found = set(re.findall(r"\]\((\w+)\.md\)", line))
    return line + " *Older source.*" if any(old(name) for name in found) else line


def _content(out: Path, name: str) -> dict[str, Any]:
    path = out / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _rows(content: dict[str, Any], table: int = 0) -> list[dict[str, Any]]:
    """Return the rows of a table by the names of its columns."""
    if not content:
        return []
    found = content["tables"][table]
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def _found(content: dict[str, Any], column: str) -> list[dict[str, Any]]:
    """Return the rows of the first table that has a column of this name."""
    tables = content.get("tables", [])
    at = next((i for i, table in enumerate(tables) if column in table["columns"]), None)
    return [] if at is None else _rows(content, at)


def _mean(cell: Any) -> float | None:
    return cell.get("mean") if isinstance(cell, dict) else None


def _shown(cell: Any) -> str:
    mean = _mean(cell)
    if mean is None:
        return "not run"
    spread = f" ± {cell['sd']:.2g}" if cell.get("sd") is not None else ""
    return f"{mean:.3g}{spread} (n {cell['runs']})"


def _scale(protocol: dict[str, Any]) -> list[str]:
    rows = {row["forecast"].split(":")[0]: row for row in _rows(protocol)}
    zero, oracle = rows.get("zero at all times"), rows.get("a filter given regimes and outliers")
    if not zero or not oracle:
        return []
    return [
        f"The paper's synthetic stream needs a signal of about 100: at 10 (features N(0, 1)) a "
        f"forecast of zero has RMSE {_shown(zero['signal 10'])}, better than the 46.1 of the "
        f"paper's best online model; at 100 zero has {_shown(zero['signal 100'])} and a filter "
        f"given regimes and outliers {_shown(oracle['signal 100'])} ([protocol](protocol.md))."
    ]


def _readings(protocol: dict[str, Any]) -> list[str]:
    if not protocol:
        return []
    rows = {row["reading"]: row for row in _rows(protocol, 1)}
    lines = []
    named = {
        "br_ihmm, default rule, R 1, Sigma_0 1, B 2": "Our default rule, which is not the text's,",
        "br_ihmm, text as printed (line 6)": "The text's own rule with the printed settings",
    }
    for name, words in named.items():
        row = rows.get(name)
        if row is None or _mean(row["RMSE"]) is None:
            continue
        measured = (_mean(row["RMSE"]), _mean(row["PPV"]), _mean(row["TPR"]))
        near = all(
            value is not None and abs(value - printed) <= CLOSE * printed
            for value, printed in zip(measured, (46.1, 0.963, 0.996), strict=True)
        )
        lines.append(
            f"{words} on that stream: RMSE {_shown(row['RMSE'])}, PPV {_shown(row['PPV'])}, TPR "
            f"{_shown(row['TPR'])}, delay {_shown(row['delay'])}; the paper prints 46.1, .963, "
            f".996 and 3.4 for br_ihmm: the means of the first three are "
            f"{'' if near else 'not '}all within {CLOSE:.0%}."
        )
    return lines


def _claims(out: Path) -> list[str]:
    lines = []
    for page, stream, model, measure, lower in _CLAIMS:
        for row in _rows(_content(out, page)):
            if (row["stream"], row["model"], row["measure"]) != (stream, model, measure):
                continue
            printed = float(row["paper prints"].split()[0])
            verdicts = [_verdict(_mean(row[c]), printed, lower) for c in (_PRINTED, _OURS)]
            words = f"{stream}, {model}, {measure.split(',')[0]}: printed {printed:.3g}; its rule "
            words += f"with its settings {_shown(row[_PRINTED])}, {verdicts[0]}; "
            cell = _with_baseline_noise(out, stream, measure.split(",")[0])
            if _mean(cell) is not None:
                verdict = _verdict(_mean(cell), printed, lower)
                words += f"with R from the baselines {_shown(cell)}, {verdict} ([R](attempt.md)); "
            words += f"our rule tuned {_shown(row[_OURS])}, {verdicts[1]} ([page]({page}.md))."
            lines.append(words)
    return lines


def _with_baseline_noise(out: Path, stream: str, measure: str) -> Any:
    """Return the cell of `attempt` for R from the baselines; None if it does not exist."""
    for row in _rows(_content(out, "attempt")):
        if (row["stream"], row["measure"]) == (stream, measure):
            return row.get(_BASELINE)
    return None


def _verdict(value: float | None, printed: float, lower: bool) -> str:
    if value is None:
        return "not run"
    if abs(value - printed) <= CLOSE * printed:
        return "reproduced"
    return "better than printed" if (value < printed) == lower else "worse than printed"


def _beam(protocol: dict[str, Any]) -> list[str]:
    rows = {row["forecast"].split(":")[0]: row for row in _rows(protocol)}
    floor = rows.get("the uncontaminated value itself")
    if not floor:
        return []
    fits = {row["assignment"]: row for row in _found(protocol, "assignment")}
    alone = fits.get("the same, each outlier a state", {}).get("RMSE in-sample")
    fit = f"; an in-sample fit with a state for each outlier has {_shown(alone)}" if alone else ""
    return [
        f"The beam sampler's printed RMSE of 2.9 is no forecast error: the outliers alone put "
        f"{_shown(floor['signal 100'])} into that of a perfect forecast{fit} "
        "([protocol](protocol.md))."
    ]


def _ahead(content: dict[str, Any]) -> list[str]:
    rows = _rows(content)
    if not rows:
        return []
    verdicts = Counter(str(row["br_ihmm is"]) for row in rows)
    behind = {f"{r['stream']} ({r['measure']})" for r in rows if r["br_ihmm is"] == "behind"}
    counts = ", ".join(f"{name}: {count}" for name, count in verdicts.most_common())
    return [
        f"Paired comparisons of br_ihmm with its rivals ([ahead](ahead.md)): {counts}. It is "
        f"behind some rival on {', '.join(sorted(behind)) or 'none of the streams'}."
    ]


def _objective(content: dict[str, Any]) -> list[str]:
    rows = {(row["stream"], row["tuned by"]): row for row in _rows(content)}
    pair = [rows.get(("iid_t", aim)) for aim in ("crps", "regimes")]
    if pair[0] is None or pair[1] is None:
        return []
    cells = [_shown(row["switches"]) for row in pair if row]
    return [
        f"Tuned by CRPS br_ihmm switches {cells[0]} times on iid levels with t noise, tuned by "
        f"forecasts and regimes {cells[1]} times; PPV, by what was known in time, is "
        f"{_shown(pair[0]['PPV'])} and {_shown(pair[1]['PPV'])} ([objective](objective.md))."
    ]


def _targets(content: dict[str, Any]) -> list[str]:
    met = Counter(str(row.get("met", "")) for row in _rows(content))
    if not met["yes"] + met["no"]:
        return []
    return [f"Of our own [targets](targets.md) {met['yes']} are met and {met['no']} missed."]
