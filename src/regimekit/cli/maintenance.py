"""Commands around the library: `models`, `demo`, `warm-up`, `reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regimekit.cli import options

if TYPE_CHECKING:
    from regimekit.cli.console import Voice
    from regimekit.datasets import Dataset
    from regimekit.results import Run


def models(json: options.Json = False) -> None:
    """List the models."""
    from regimekit.cli.console import Voice
    from regimekit.core.registry import REGISTRY

    voice = Voice(json)
    entries = REGISTRY.values()
    voice.result({"models": [entry._asdict() for entry in entries]})
    rows = [[e.name, "online" if e.online else "offline", e.summary] for e in entries]
    voice.table(["model", "", "what it is"], rows)


def demo(
    out: options.Out = Path("out/demo"),
    n: Annotated[int, typer.Option(help="Length of the stream.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of the stream and of the model.")] = 0,
    model: options.Model = "br_ihmm",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a model on a generated stream whose truth is known."""
    import regimekit as rk
    from regimekit.cli.console import Voice
    from regimekit.cli.destination import Destination, write_sheet
    from regimekit.cli.running import greet_compiler, tell_scores
    from regimekit.core.exceptions import whole

    voice = Voice(json, quiet)
    whole("--n", n, 20)
    with Destination(out) as destination:
        stream = rk.data.regime_stream(seed=seed, n=n)
        write_sheet(destination.path("demo.csv"), {"y": stream.y.tolist()})
        greet_compiler(voice)
        learner = rk.make(model, **_demo_settings(model, seed))
        run = learner.run(stream.y)
        scores, truth = _demo_scores(run, stream), _truth(run, stream)
        _draw(run, stream, destination, model, voice)
        files = destination.commit()
    voice.result({"model": model, "scores": scores, "truth": truth, "out": str(out)})
    voice.say(f"{model} on {n} generated values: levels that return, spikes and bursts")
    tell_scores(scores, "y before it was contaminated", 0.9, voice)
    voice.table(["", "found", "true"], [[name, *pair] for name, pair in truth.items()])
    voice.say(f"in {out}: {', '.join(files)}; run it yourself: regimekit run {out / 'demo.csv'}")


def warm_up() -> None:
    """Compile the kernels now, so that the first run starts at once."""
    import numpy as np

    import regimekit as rk
    from regimekit._numba import cache_root
    from regimekit.cli.console import Voice
    from regimekit.cli.running import greet_compiler

    voice = Voice()
    greet_compiler(voice)
    rng = np.random.default_rng(0)
    for name in rk.models():
        model = rk.make(name)
        model.run(rng.standard_normal(20))
        rk.from_bytes(model.to_bytes())  # what a snapshot is checked by is compiled too
    rk.br_ihmm().run(rng.standard_normal((20, 2)))
    voice.say(f"kernels are ready in {cache_root()}")


def reproduce(
    items: Annotated[
        list[str] | None, typer.Argument(help="Tables and figures by name, `all`, or `list`.")
    ] = None,
    runs: Annotated[int, typer.Option(help="At most so many seeds of anything.")] = 20,
    jobs: Annotated[int, typer.Option(help="Runs side by side, each in a process.")] = 2,
    out: options.Out = Path("out/reproduction"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Few rows and particles, one run: a smoke test.")
    ] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Say how long it would take, and run nothing.")
    ] = False,
) -> None:
    """Make the paper's tables and figures; what was run before is not run again."""
    from regimekit.cli.console import Voice
    from regimekit.cli.running import greet_compiler
    from regimekit.core.exceptions import whole

    voice, paper = Voice(), _paper()
    if not items or "list" in items:
        rows = [[item.name, item.title, item.source] for item in paper.ITEMS.values()]
        voice.table(["item", "what it is", "in the paper"], rows)
        return
    chosen = paper.choose(items)
    plan = paper.Plan(whole("--runs", runs), quick)
    if estimate:
        _tell_estimate(paper.estimate(chosen, out, plan), voice)
        return
    greet_compiler(voice)
    for done in paper.reproduce(chosen, out, plan, whole("--jobs", jobs), progress=True):
        voice.say(f"{done.name}: {done.runs} runs; figure: {done.figure or 'none'}")
        for what, reason in done.absent.items():
            voice.say(f"  {what}: {reason}")
    voice.say(f"all of it: {out / 'index.md'}")


def _tell_estimate(due: list[tuple[str, int, float]], voice: Voice) -> None:
    """What is left to run of each item, in minutes of one core."""
    rows = [[name, str(runs), f"{minutes:.1f}"] for name, runs, minutes in due]
    total = sum(minutes for _, _, minutes in due)
    rows.append(["all of it", str(sum(runs for _, runs, _ in due)), f"{total:.1f}"])
    voice.table(["item", "runs to do", "core minutes"], rows)


def _paper() -> Any:
    """The folder `paper` of a checkout, imported; it is not part of the installed library."""
    import importlib
    import sys

    import regimekit
    from regimekit.core.exceptions import RegimekitError

    for root in (Path.cwd(), Path(regimekit.__file__).resolve().parents[2]):
        if (root / "paper" / "catalogue.py").is_file():
            sys.path.insert(0, str(root))
            return importlib.import_module("paper")
    raise RegimekitError(
        "The paper's experiments are not part of the installed library: `reproduce` needs the "
        "folder `paper` of a source checkout. Run it from the checkout's top folder."
    )


def _demo_settings(model: str, seed: int) -> dict[str, Any]:
    """What is known of the generated stream, for the model that must be told."""
    from regimekit.core.registry import make

    known: dict[str, Any] = {"noise": 0.16, "prior_var": 4.0} if model == "br_ihmm" else {}
    return known | ({"seed": seed} if "seed" in make(model).settings() else {})


def _demo_scores(run: Run, stream: Dataset) -> dict[str, float]:
    """Errors against the values before contamination; the last value is the contaminated one."""
    from regimekit.metrics.prequential import RunningScores

    assert stream.clean is not None
    scores = RunningScores(skip=50)
    scores.add(stream.y, run.mean, run.lower, run.upper, run.log_score, target=stream.clean)
    return scores.table()


def _truth(found: Run, stream: Dataset) -> dict[str, tuple[str, str]]:
    """What was found beside what is true, over the whole stream."""
    from regimekit import metrics as evaluate

    regimes, outliers = stream.regimes, stream.outliers
    assert regimes is not None and outliers is not None
    caught, flagged = int((found.outlier & outliers).sum()), int(found.outlier.sum())
    return {
        "regimes": (str(evaluate.n_regimes(found.path)), str(evaluate.n_regimes(regimes))),
        "switches": (str(evaluate.switches(found.path)), str(evaluate.switches(regimes))),
        "outliers caught": (str(caught), str(int(outliers.sum()))),
        "flagged besides": (str(flagged - caught), "0"),
        "agreement (ARI)": (f"{evaluate.adjusted_rand(found.path, regimes):.3f}", "1"),
    }


def _draw(run: Run, stream: Dataset, destination: Any, model: str, voice: Voice) -> None:
    """Write the picture, or say what it needs; everything else is done without it."""
    from regimekit import plotting as plot

    try:
        title = f"{model} on a generated stream"
        figure = plot.run_figure(run, stream.y, title, truth=stream.regimes)
        plot.save(figure, destination.path("demo.png"))
    except plot.NoPictures as error:
        voice.warn(f"demo.png is not written. {error}")
