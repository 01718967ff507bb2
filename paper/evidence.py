"""All evidence by one command: `python -m paper evidence [--plan | --quick] [--only STAGE ..]`.

    --plan     print the stages, their pages, which are due, and core minutes
    --quick    run every stage at its smallest size into out/evidence/quick; no page changes
    neither    run the stages that are due; an interrupted call is continued by the next one

Three stages have their own records and resume from them: `tune`, `tables` and `public`. Any other
stage is due if the source that determines its outcome, or its command, differs from that of the
last complete run, which `docs/measured/evidence.json` records with its core minutes. The output of
a stage is in out/evidence/STAGE.txt. Stages marked *by hand* are quoted in the text of a page, so
their output has to be copied there.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from rich.console import Console
from rich.table import Table

from paper.state import state

ROOT = Path(__file__).parents[1]
OUT = Path("out/evidence")
RECORD = ROOT / "docs/measured/evidence.json"
PEERS = ".venv-bench/bin/python"  # has the packages that regimekit is compared with
MAX_DOCS = 15.0  # MB, size of the folder docs
_HORIZONS = "-m benchmarks.horizons --series held_out --origins"


@dataclass(frozen=True)
class Stage:
    """One part of the evidence.

    Attributes:
        name: name on the command line.
        page: file or folder that it writes, or that quotes what it prints.
        command: arguments of Python; `{jobs}` is the number of processes.
        quick: the same at its smallest size; `{out}` is a folder for what it writes.
        minutes: of one core, roughly, until a complete run has been recorded.
        sources: files that decide the outcome; none if the stage keeps its own records.
        by_hand: whether the output is copied into the page by hand.
        peers: whether other packages are needed.
    """

    name: str
    page: str
    command: str
    quick: str
    minutes: float
    sources: tuple[str, ...] = ()
    by_hand: bool = False
    peers: bool = False

    @property
    def state(self) -> str:
        """A hash of source and command; empty if the stage has its own records."""
        if not self.sources:
            return ""
        files = [file for name in self.sources for file in sorted(ROOT.glob(name))]
        code = [file for file in files if file.suffix == ".py"]
        pages = [file.read_text("utf-8") for file in files if file not in code]
        models = ["regimekit.core.registry"] if pages else []  # models that their snippets make
        content = [state(models, files=code), self.command, *pages]
        return sha256("\n".join(content).encode()).hexdigest()[:12]


def _asked(name: str, page: str, first: str, minutes: float, module: str = "") -> Stage:
    """Return the stage of a page that `benchmarks.untuned.ask_all` writes."""
    command = f"-m benchmarks.{module or name} --out"
    sources = (f"benchmarks/{module or name}.py", "benchmarks/untuned.py")
    quick = f"{command} {{out}}/{name}.md --seeds 1 --only {shlex.quote(first)}"
    return Stage(name, page, f"{command} {page}", quick, minutes, sources)


STAGES = (
    Stage("costs", "paper/costs.json", "-m paper costs", "-m paper costs --list", 10.0),
    Stage(
        "tune",
        "paper/tuned",
        "-m paper tune --jobs {jobs}",
        "-m paper tune --streams iid_t --models ihmm --variants second --budget 2 "
        "--out {out}/tuned",
        40.0,
    ),
    Stage(
        "tables",
        "docs/reproduction",
        "-m regimekit.cli reproduce all --runs 20 --jobs {jobs} --out docs/reproduction",
        "-m regimekit.cli reproduce all --quick --jobs 1 --out {out}/reproduction",
        300.0,
    ),
    _asked("rule", "docs/measured/rule.md", "first_far_off", 5.0, "untuned"),
    _asked("auto", "docs/measured/auto.md", "well_log", 3.0, "real"),
    _asked("lags", "docs/measured/lags.md", "br_ihmm, known noise", 3.0),
    _asked("dated", "docs/measured/dated.md", "noise", 3.0),
    _asked("covering", "docs/measured/covering.md", "local level", 5.0),
    _asked("faults", "docs/measured/faults.md", "three levels, noise .5, 50 off", 3.0),
    Stage(
        "starts",
        "docs/robustness.md",
        "-m benchmarks.faults starts --first 100000 --seeds 2000",
        "-m benchmarks.faults starts --seeds 1 --models bocd br_ihmm",
        40.0,
        ("benchmarks/faults.py",),
        by_hand=True,
    ),
    Stage(
        "stickiness",
        "docs/measured/rule.md",
        "-m benchmarks.stickiness",
        "-m benchmarks.stickiness --seeds 1",
        2.0,
        ("benchmarks/stickiness.py",),
        by_hand=True,
    ),
    Stage(
        "labels",
        "docs/deviations.md",
        "-m benchmarks.labels --first 200 --seeds 40",
        "-m benchmarks.labels --seeds 1",
        6.0,
        ("benchmarks/labels.py", "benchmarks/untuned.py"),
        by_hand=True,
    ),
    Stage(
        "bursts",
        "docs/robustness.md",
        "-m benchmarks.bursts",
        "-m benchmarks.bursts --runs 1",
        5.0,
        ("benchmarks/bursts.py",),
        by_hand=True,
    ),
    Stage(
        "streams",
        "docs/measured/auto-design.md",
        "-m benchmarks.auto --rows 400 --seed 501",
        "-m benchmarks.auto --rows 120 --only arma",
        5.0,
        ("benchmarks/auto.py",),
        by_hand=True,
    ),
    Stage(
        "horizons",
        "docs/measured/horizons.md",
        f"{_HORIZONS} 6 --horizon 48 --peers flaircast,SNARIMAX,HoltWinters --out "
        "docs/measured/horizons.md",
        f"{_HORIZONS} 1 --horizon 6 --only airline --out {{out}}/horizons.md",
        60.0,
        ("benchmarks/horizons/*.py",),
        peers=True,
    ),
    Stage(
        "segmentation",
        "docs/measured/regimes.md",
        "-m benchmarks.segmentation",
        "-m benchmarks.segmentation --peers auto --only run_log",
        12.0,
        ("benchmarks/segmentation.py", "benchmarks/public/detectors.py"),
        by_hand=True,
        peers=True,
    ),
    Stage(
        "alerts",
        "docs/alerts.md",
        "-m benchmarks.alerts",
        "-m benchmarks.alerts --only occupancy_t4013 --cache {out}/alerts",
        6.0,
        ("benchmarks/alerts.py", "benchmarks/public/nab.py"),
        by_hand=True,
    ),
    Stage(
        "own_past",
        "docs/measured/anomaly-score.md",
        "-m benchmarks.own_past",
        "-m benchmarks.own_past --first 2 --cache {out}/alerts",
        8.0,
        ("benchmarks/own_past.py", "benchmarks/alerts.py", "benchmarks/public/nab.py"),
        by_hand=True,
    ),
    Stage(
        "public",
        "docs/benchmarks.md",
        "-m benchmarks.public --page docs/benchmarks.md",
        "-m benchmarks.public --quick --tasks changes --peers regimekit --out {out}/public",
        5.0,
        peers=True,
    ),
    Stage(
        "results",
        "benchmarks/RESULTS.md",
        "-m benchmarks peers --write",
        "-m benchmarks goals --rounds 1",
        15.0,
        ("benchmarks/[gprst]*.py", "benchmarks/dense_jax.py", "benchmarks/__main__.py"),
        peers=True,
    ),
    Stage(
        "snapshots",
        "docs/spark.md",
        "-m benchmarks.snapshots docs/spark.md",
        "-m benchmarks.snapshots",
        2.0,
        ("benchmarks/snapshots.py", "benchmarks/spark_plan.py"),
    ),
    Stage(
        "spark_plan",
        "docs/spark.md",
        "-m benchmarks.spark_plan docs/spark.md",
        "-m benchmarks.spark_plan",
        2.0,
        ("benchmarks/spark_plan.py",),
    ),
    Stage(
        "serve",
        "docs/serve.md",
        "-m benchmarks.serve --streams 200",
        "-m benchmarks.serve --streams 2 --seconds 1 --rows 1 --clients 2 --model small",
        10.0,
        ("benchmarks/serve.py",),
        by_hand=True,
    ),
    Stage(
        "soak",
        "docs/robustness.md",
        "-m benchmarks.soak",
        "-m benchmarks.soak --observations 4000",
        3.0,
        ("benchmarks/soak.py",),
        by_hand=True,
    ),
    Stage(
        "pictures",
        "docs/images",
        "-m docs.pictures",
        "-c 'from docs import pictures'",
        3.0,
        ("docs/pictures.py", "docs/regimes.md", "docs/models/*.md", "docs/cookbook/*.md"),
    ),
)
_NAMES = [stage.name for stage in STAGES]


def recorded(path: Path | None = None) -> dict[str, dict[str, object]]:
    """Return state and core minutes of the last complete run of each stage.

    Args:
        path: the record; by default that of the repository.
    """
    path = path or RECORD
    found: dict[str, dict[str, object]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def due(stage: Stage, kept: Mapping[str, Mapping[str, object]]) -> bool:
    """Return whether a stage has to be run; one with its own records always is.

    Example:
        >>> stage = Stage("one", "README.md", "-c pass", "-c pass", 1.0, ("paper/evidence.py",))
        >>> due(stage, {}), due(stage, {"one": {"state": stage.state}})
        (True, False)
    """
    return not stage.sources or kept.get(stage.name, {}).get("state") != stage.state


def minutes(stage: Stage, kept: Mapping[str, Mapping[str, object]]) -> float:
    """Return the estimated core minutes of what is due in a stage."""
    if not due(stage, kept):
        return 0.0
    if stage.name == "tune":
        from paper import tuning

        return sum(s.minutes(tuning.BUDGET) for s in tuning.searches() if not s.done())
    if stage.name == "tables":
        from paper import runner
        from paper.catalogue import choose
        from paper.plan import Plan

        found = runner.estimate(choose(["all"]), ROOT / stage.page, Plan())
        return sum(spent for _, _, spent in found)
    measured = kept.get(stage.name, {}).get("minutes", stage.minutes)
    assert isinstance(measured, float | int)
    return float(measured)


def plan(stages: Sequence[Stage], console: Console) -> float:
    """Print the stages that are due with their costs, and return the core minutes.

    Args:
        stages: the stages.
        console: where to print.
    """
    kept, total = recorded(), 0.0
    table = Table("stage", "makes", "due", "core minutes", "estimated from", box=None)
    for stage in stages:
        left = minutes(stage, kept)
        total += left
        words = "what is missing" if not stage.sources else "yes" if due(stage, kept) else "no"
        page = f"{stage.page} (by hand)" if stage.by_hand else stage.page
        measured = "its runs" if stage.name in ("tune", "tables") else "a guess"
        if stage.name in kept:
            measured = "the last run"
        table.add_row(stage.name, page, words, f"{left:.0f}", measured)
    console.print(table)
    size = f"Folder docs: {docs_size():.1f} MB of {MAX_DOCS:g} MB."
    console.print(f"{total:.0f} core minutes in all ({total / 60:.1f} hours). {size}")
    return total


def docs_size() -> float:
    """Return the size of the files in the folder docs, in MB."""
    files = (path for path in (ROOT / "docs").rglob("*") if path.is_file())
    return sum(p.stat().st_size for p in files if "__pycache__" not in p.parts) / 1e6


def run(
    stages: Sequence[Stage], out: Path, jobs: int, quick: bool, console: Console
) -> dict[str, int]:
    """Run stages, record those that are complete, and return exit codes by name.

    Args:
        stages: what to run, in this order.
        out: folder for what is printed.
        jobs: number of processes.
        quick: run the smallest size and record nothing.
        console: where progress is printed.
    """
    folder = out / "quick" if quick else out
    folder.mkdir(parents=True, exist_ok=True)
    codes: dict[str, int] = {}
    for number, stage in enumerate(stages, 1):
        label = f"{number}/{len(stages)} {stage.name}"
        if not quick and not due(stage, recorded()):
            console.print(f"{label}: up to date")
            continue
        now = stage.state  # before it runs: an edit during the run makes it due again
        code, spent = _call(stage, folder, jobs, quick)
        codes[stage.name] = code
        ended = "done" if code == 0 else f"failed with exit code {code}"
        console.print(f"{label}: {ended}, {spent:.2f} core minutes, {folder / stage.name}.txt")
        if code == 0 and not quick:
            entry: dict[str, object] = {"state": now, "minutes": round(spent, 2)}
            content = recorded() | {stage.name: entry}
            RECORD.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    return codes


def _call(stage: Stage, folder: Path, jobs: int, quick: bool) -> tuple[int, float]:
    """Run a stage, and return its exit code and core minutes."""
    program = PEERS if stage.peers and (ROOT / PEERS).exists() else sys.executable
    words = (stage.quick if quick else stage.command).format(jobs=jobs, out=folder.resolve())
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (folder / f"{stage.name}.txt").open("w") as target:
        done = subprocess.run(
            [program, *shlex.split(words)],
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdout=target,
            stderr=subprocess.STDOUT,
            check=False,
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.returncode, seconds / 60


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the plan, or run the stages that are due."""
    parser = argparse.ArgumentParser(prog="python -m paper evidence")
    parser.add_argument("--plan", action="store_true", help="print stages and cost, run nothing")
    parser.add_argument("--quick", action="store_true", help="every stage at its smallest size")
    parser.add_argument("--only", nargs="+", choices=_NAMES, default=_NAMES, metavar="STAGE")
    parser.add_argument("--jobs", type=int, default=2, help="processes of tune and tables")
    given = parser.parse_args(arguments)
    console, stages = Console(), [stage for stage in STAGES if stage.name in given.only]
    if not given.quick:
        plan(stages, console)
    if given.plan:
        return
    codes = run(stages, OUT, given.jobs, given.quick, console)
    failed = [name for name, code in codes.items() if code]
    if docs_size() > MAX_DOCS:
        failed.append(f"docs: {docs_size():.1f} MB, must be at most {MAX_DOCS:g} MB")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
