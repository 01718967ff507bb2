"""Commands of the service: serve, token, backup, restore. They need the extra `serve`.

The other modules of the service are imported when a command runs, so the other commands of
regimekit work without the packages of the extra.
"""

from __future__ import annotations

import inspect
import tempfile
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from regimekit.server.config import DEFAULT_DATABASE, Config

Database = Annotated[
    str, typer.Option("--db", help="sqlite:///FILE or postgresql://USER@HOST/NAME.")
]

token_app = typer.Typer(help="Tokens of the service.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands of the service to the command line."""
    app.command()(serve)
    app.command()(backup)
    app.command()(restore)
    app.add_typer(token_app, name="token")


def serve(**options: Any) -> None:
    """Serve streams over HTTP, with a live page."""
    _require_packages()
    from regimekit.server.app import run
    from regimekit.server.storage.database import check_unused

    with tempfile.TemporaryDirectory(prefix="regimekit-demo-") as folder:
        if options["demo"] and not options["db"]:
            options["db"] = f"sqlite:///{folder}/demo.db"
        config = Config(**options)
        check_unused(config.db)
        run(config)


def _serve_options() -> list[inspect.Parameter]:
    """Return the parameters of `serve`, which typer reads: the settings of `Config`."""
    types = get_type_hints(Config)
    return [
        inspect.Parameter(
            entry.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=entry.default,
            annotation=Annotated[
                types[entry.name],
                typer.Option(f"--{entry.name.replace('_', '-')}", **entry.metadata),
            ],
        )
        for entry in fields(Config)
        if entry.metadata
    ]


serve.__signature__ = inspect.Signature(_serve_options())  # type: ignore[attr-defined]
serve.__annotations__ = {entry.name: entry.annotation for entry in _serve_options()}


def backup(
    file: Annotated[Path, typer.Argument(help="File to write.")], db: Database = DEFAULT_DATABASE
) -> None:
    """Write the whole database to one file; the service may be running."""
    _require_packages()
    from regimekit.server.storage import database

    _print_counts("backed up", database.backup(db, file))


def restore(
    file: Annotated[Path, typer.Argument(help="A backup file.")], db: Database = DEFAULT_DATABASE
) -> None:
    """Restore a backup into an empty database."""
    _require_packages()
    from regimekit.server.storage import database

    _print_counts("restored", database.restore(db, file))


@token_app.command("add")
def token_add(
    name: Annotated[str, typer.Argument(help="Unique name of the token.")],
    read: Annotated[
        list[str] | None, typer.Option(help="Key prefix with read access; '' is all.")
    ] = None,
    write: Annotated[
        list[str] | None, typer.Option(help="Key prefix with write access; '' is all.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Requests per second (0: no limit).", min=0)] = 100,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Create a token. It is printed once; the database stores only its hash."""
    _require_packages()
    from regimekit.server.storage import tokens
    from regimekit.server.storage.database import database, write_transaction

    scopes = [("read", p) for p in read or []] + [("write", p) for p in write or []]
    with database(db) as engine, write_transaction(engine) as connection:
        secret = tokens.add(connection, name, scopes, rate)
    typer.echo(secret)


@token_app.command("list")
def token_list(db: Database = DEFAULT_DATABASE) -> None:
    """List tokens by name with their access; the tokens themselves are not stored."""
    _require_packages()
    from regimekit.server.storage import tokens
    from regimekit.server.storage.database import database

    with database(db) as engine, engine.connect() as connection:
        for token in tokens.list_all(connection):
            scopes = ", ".join(f"{access} {prefix or '(all)'}" for access, prefix in token.scopes)
            state = "" if token.revoked is None else "  revoked"
            typer.echo(f"{token.name}  {scopes}  {token.rate:g}/s{state}")


@token_app.command("revoke")
def token_revoke(
    name: Annotated[str, typer.Argument(help="Name of the token.")], db: Database = DEFAULT_DATABASE
) -> None:
    """Revoke a token; a running service rejects it after at most two seconds."""
    _require_packages()
    from regimekit.core.exceptions import RegimekitError
    from regimekit.server.storage import tokens
    from regimekit.server.storage.database import database, write_transaction

    with database(db) as engine, write_transaction(engine) as connection:
        if not tokens.revoke(connection, name):
            raise RegimekitError(f"There is no active token {name!r}.")
    typer.echo(f"revoked {name}")


def _print_counts(done: str, counts: dict[str, int]) -> None:
    parts = [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]
    typer.echo(f"{done}: {', '.join(parts) or 'nothing, the database is empty'}")


def _require_packages() -> None:
    """Raise RegimekitError if a package of the extra `serve` is missing."""
    from regimekit.core.exceptions import RegimekitError

    for name in ("fastapi", "sqlalchemy", "uvicorn"):
        if find_spec(name) is None:
            raise RegimekitError(
                f"The service needs the package {name}: pip install 'regimekit[serve]'."
            )
