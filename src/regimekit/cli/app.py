"""The commands, registered. Start-up matters: a command imports what it needs when it runs."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Annotated, Any

import typer

import regimekit
from regimekit.cli import compare_tune as studies
from regimekit.cli import maintenance as upkeep
from regimekit.cli import running, snapshots
from regimekit.core.warnings import RegimekitWarning

app = typer.Typer(
    help="Online regimes and honest forecasts from a stream, unshaken by outliers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes around the help would cost a third of its time
)


def _version(asked: bool) -> None:
    if asked:
        print(f"regimekit {regimekit.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Say which version."),
    ] = False,
) -> None:
    """Online regimes and honest forecasts from a stream, unshaken by outliers."""


app.command("run")(running.run)
app.command("resume")(running.resume)
app.command("compare")(studies.compare)
app.command("tune")(studies.tune)
app.command("forecast")(snapshots.forecast)
app.command("inspect")(snapshots.inspect)
app.command("report")(snapshots.report)
app.command("models")(upkeep.models)
app.command("demo")(upkeep.demo)
app.command("warm-up")(upkeep.warm_up)
app.command("reproduce")(upkeep.reproduce)


def _mount_service() -> None:
    """The commands of the service, where it is part of this installation."""
    try:
        service = importlib.import_module("regimekit.server.cli")
    except ModuleNotFoundError:
        return
    service.register(app)


_mount_service()


def _plainly(*, usual: Any = warnings.showwarning) -> Any:
    """A way to show warnings: advice is a line for people, without a place in the code."""

    def show(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, RegimekitWarning):
            print(f"regimekit: {message}", file=sys.stderr)
        else:
            usual(message, category, *rest, **more)

    return show


def main() -> None:
    """Run the command line; what a person got wrong is one line and exit code 2."""
    warnings.showwarning = _plainly()
    try:
        app()
    except KeyboardInterrupt:
        print("regimekit: interrupted; nothing was written.", file=sys.stderr)
        raise SystemExit(130) from None
    except ValueError as error:
        from regimekit.core.exceptions import RegimekitError

        if not isinstance(error, RegimekitError):
            raise
        print(f"regimekit: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None
