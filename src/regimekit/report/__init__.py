"""One HTML file that tells a person what a run found: no server, no network, nothing to install.

    write_report("report.html", run=run, model=model, y=y)

The page carries its data, its drawing library (uPlot) and its style inside. A long series is
stored in few bytes and drawn by buckets, finer the closer one looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from regimekit import assets
from regimekit.report.content import Content
from regimekit.results import Run
from regimekit.serialization import snapshot

__all__ = ["render", "write_report"]


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
) -> str:
    """The report as one HTML text.

    Args:
        run: what `model.run(y)` gave.
        model: the model after that run.
        y: the stream, (T,) or (T, d).
        times: one per observation: dates, texts that are dates, or numbers.
        title: above the report; by default the model's name and the number of observations.
        horizon: how many steps ahead to forecast; 0 leaves that out.
        scores: as `evaluate.prequential(...).scores()`, or by forecaster a mapping of scores.
            Without them the errors are computed from the run.
        warnings: sentences to show at the top.
        settings: what to list as settings; by default the model's own.
        calibration: `evaluate.calibration(pit)`, or {"pit": [share of each bin], "coverage":
            {level: share}}. Without it both are put together from the run's limits.
        level: probability of the run's limits (the run's own, else 0.9).
        X: covariates of the next `horizon` observations, if the features need any.
        names: names of the coefficients, if the model cannot tell them.
        regime_names: what people call some of the regimes, by id.

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
        regime_names or {},
    )
    page = Environment(
        loader=PackageLoader("regimekit.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page.globals["asset"] = assets.read
    return page.get_template("report.html").render(content.context())


def write_report(path: str | Path, **content: Any) -> Path:
    """Write the report to a file, whole or not at all; the keywords are those of `render`.

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
