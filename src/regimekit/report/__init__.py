"""HTML report of a run: one file that needs no server and no network.

    write_report("report.html", run=run, model=model, y=y)

The file contains the data, the chart library (uPlot), the charts and the stylesheet. Long series
are compressed, and drawn in buckets that become finer on zooming in.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from regimekit import assets
from regimekit.report.content import Content
from regimekit.report.tables import sparkline
from regimekit.results import Run
from regimekit.serialization import snapshot

_PAGE = Path(__file__).parent / "page"

__all__ = ["render", "render_overview", "script_policy", "write_report"]


def render(
    *,
    run: Run,
    model: Any,
    y: Any,
    times: Any = None,
    title: str = "",
    horizon: int = 24,
    scores: Mapping[str, Any] | None = None,
    warnings: Iterable[str] = (),
    settings: Mapping[str, Any] | None = None,
    calibration: Any = None,
    level: float | None = None,
    X: Any = None,
    names: list[str] | None = None,
    regime_names: Mapping[int, str] | None = None,
    back: str = "",
) -> str:
    """Render the report as HTML.

    Args:
        run: output of `model.run(y)`.
        model: the model after this run.
        y: observations (T,) or (T, d).
        times: time stamps: dates, texts that are dates, or numbers.
        title: title, by default the name of the model and the number of observations.
        horizon: number of steps to forecast; 0 for no forecast.
        scores: output of `evaluate.prequential(...).scores()`, or a mapping of scores by
            forecaster. By default the errors are computed from the run.
        warnings: warnings to show at the top.
        settings: settings to list, by default those of the model.
        calibration: output of `evaluate.calibration(pit)`, or {"pit": [share of each bin],
            "coverage": {level: share}}. By default approximated from the limits of the run.
        level: probability of the limits of the run, by default that of the run.
        X: covariates of the next `horizon` observations, if the features need any.
        names: names of the coefficients, if the model does not provide them.
        regime_names: names of regimes by id.
        back: address of the overview, if this is the page of one series of several.

    Returns:
        The HTML text.

    Raises:
        RegimekitError: if an argument does not fit the run.

    Example:
        >>> import regimekit as rk
        >>> y = [0.0, 0.1, -0.1, 5.0, 5.1, 4.9] * 4
        >>> model = rk.br_ihmm(batch=3, particles=10)
        >>> page = render(run=model.run(y), model=model, y=y, title="Two levels")
        >>> "<h1>Two levels</h1>" in page
        True
    """
    content = Content(
        run,
        model,
        y,
        times,
        title,
        horizon,
        scores,
        warnings,
        settings,
        calibration,
        level,
        X,
        names,
        regime_names or {own.id: own.name for own in model.regimes() if own.name},
    )
    template = _environment().get_template("report.html")
    return template.render(
        content.context(), scripts=_scripts(), script_policy=script_policy(), back=back
    )


def render_overview(
    *,
    title: str,
    entries: list[dict[str, Any]],
    model: str,
    left_out: int = 0,
    errors: Mapping[str, str] | None = None,
) -> str:
    """Render the overview of a run with several series as HTML.

    Args:
        title: title of the page.
        entries: one per series: `key`, `page` (address of its report), `values` (T,), and the
            columns of the table.
        model: name of the model.
        left_out: number of series without a page.
        errors: messages by series, of those that failed.

    Returns:
        The HTML text.
    """
    drawn = [entry | {"lines": sparkline(entry["values"])} for entry in entries]
    template = _environment().get_template("overview.html")
    return template.render(
        title=title, entries=drawn, model=model, left_out=left_out, errors=errors or {}
    )


def _environment() -> Environment:
    page = Environment(
        loader=PackageLoader("regimekit.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page.globals["asset"] = assets.read
    page.globals["layout"] = (_PAGE / "report.css").read_text(encoding="utf-8")
    return page


@cache
def _scripts() -> tuple[str, ...]:
    """Return the scripts of every report; none of them contains data."""
    # An inline script is no module: the shared chart module is inlined without its exports.
    charts = re.sub(r"^export ", "", assets.read("charts.js"), flags=re.MULTILINE)
    own = (_PAGE / "page.js").read_text(encoding="utf-8")
    return (
        assets.read("uplot", "uPlot.iife.min.js"),
        f'"use strict";\n(() => {{\n{charts}\n{own}\n}})();\n',
    )


@cache
def script_policy() -> str:
    """Return the directive of a Content-Security-Policy that permits these scripts only."""
    digests = [hashlib.sha256(script.encode()).digest() for script in _scripts()]
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return f"script-src {hashes}"


def write_report(path: str | Path, **content: Any) -> Path:
    """Write the report to a file atomically.

    Args:
        path: file to write; its folder is created if necessary.
        **content: arguments of `render`.

    Returns:
        The path.

    Example:
        >>> import regimekit as rk, tempfile
        >>> y = [0.0, 0.1, -0.1, 5.0, 5.1, 4.9] * 4
        >>> model = rk.br_ihmm(batch=3, particles=10)
        >>> file = Path(tempfile.mkdtemp()) / "report.html"
        >>> write_report(file, run=model.run(y), model=model, y=y).name
        'report.html'
    """
    path = Path(path)
    page = render(**content)
    path.parent.mkdir(parents=True, exist_ok=True)
    snapshot.write_file(path, page.encode())
    return path
