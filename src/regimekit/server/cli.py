"""Commands of the service: serve, token, backup, restore. They need the extra `serve`.

Nothing of the service is imported until one of them runs, so the rest of the command line needs
none of its packages.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

Database = Annotated[
    str, typer.Option("--db", help="sqlite:///FILE or postgresql://USER@HOST/NAME.")
]
_DEFAULT_DATABASE = "sqlite:///regimekit.db"

token_app = typer.Typer(help="Tokens of the service.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Mount the service's commands on the command line."""
    app.command()(serve)
    app.command()(backup)
    app.command()(restore)
    app.add_typer(token_app, name="token")


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 8000,
    db: Annotated[
        str | None, typer.Option("--db", help="sqlite:///FILE or postgresql://USER@HOST/NAME.")
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Feed a stream of its own.")] = False,
    workers: Annotated[int, typer.Option(help="Processes that run models (0: cores).")] = 0,
    memory: Annotated[int, typer.Option(help="Models kept in memory.", min=1)] = 1000,
    snapshot_every: Annotated[
        int, typer.Option(help="Observations between snapshots of a model.", min=1)
    ] = 500,
    require_token: Annotated[
        bool, typer.Option("--require-token", help="Also on this machine: behind a proxy.")
    ] = False,
    allow_private_webhooks: Annotated[
        bool, typer.Option("--allow-private-webhooks", help="Webhooks may reach private networks.")
    ] = False,
    certificate: Annotated[Path | None, typer.Option(help="TLS: certificate file (PEM).")] = None,
    private_key: Annotated[Path | None, typer.Option(help="TLS: key file (PEM).")] = None,
    log: Annotated[str, typer.Option(help="Log lines: json, text or auto.")] = "auto",
) -> None:
    """Serve streams over HTTP, with a page that shows them."""
    _needs_extra()
    from regimekit.server.config import Config
    from regimekit.server.server import run

    if log not in ("json", "text", "auto"):
        raise _error(f"--log must be json, text or auto, got {log!r}.")
    form = ("text" if sys.stderr.isatty() else "json") if log == "auto" else log
    cores = 1 if demo else max(1, min(8, os.cpu_count() or 1))
    with tempfile.TemporaryDirectory(prefix="regimekit-demo-") as folder:
        fallback = f"sqlite:///{folder}/demo.db" if demo else _DEFAULT_DATABASE
        run(
            Config(
                db=db or fallback,
                host=host,
                port=port,
                workers=workers or cores,
                models_in_memory=memory,
                snapshot_every=snapshot_every,
                require_token=require_token,
                allow_private_webhooks=allow_private_webhooks,
                demo=demo,
                certificate=None if certificate is None else str(certificate),
                private_key=None if private_key is None else str(private_key),
                log_format=form,
            )
        )


def backup(
    file: Annotated[Path, typer.Argument(help="Where to write the backup.")],
    db: Database = _DEFAULT_DATABASE,
) -> None:
    """Write the whole database to one file, also while the service runs."""
    _needs_extra()
    from regimekit.server.backup import backup as write

    _say_counts("backed up", write(db, file))


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `backup` wrote.")],
    db: Database = _DEFAULT_DATABASE,
) -> None:
    """Fill an empty database from a backup."""
    _needs_extra()
    from regimekit.server.backup import restore as read

    _say_counts("restored", read(db, file))


@token_app.command("add")
def token_add(
    name: Annotated[str, typer.Argument(help="A name to know the token by.")],
    read: Annotated[
        list[str] | None, typer.Option(help="May read streams with this prefix; '' is all.")
    ] = None,
    write: Annotated[
        list[str] | None, typer.Option(help="May write streams with this prefix; '' is all.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Requests per second (0: no limit).", min=0)] = 100,
    db: Database = _DEFAULT_DATABASE,
) -> None:
    """Make a token. It is shown once; the database keeps only its hash."""
    _needs_extra()
    from regimekit.server.storage import access
    from regimekit.server.storage.database import opened, writing

    scopes = [("read", p) for p in read or []] + [("write", p) for p in write or []]
    with opened(db) as engine, writing(engine) as connection:
        secret = access.add_token(connection, name, scopes, rate)
    typer.echo(secret)


@token_app.command("list")
def token_list(db: Database = _DEFAULT_DATABASE) -> None:
    """List tokens: names and rights, never the tokens themselves."""
    _needs_extra()
    from regimekit.server.storage import access
    from regimekit.server.storage.database import opened

    with opened(db) as engine, engine.connect() as connection:
        for token in access.list_tokens(connection):
            scopes = ", ".join(f"{right} {prefix or '(all)'}" for right, prefix in token.scopes)
            state = "" if token.revoked is None else "  revoked"
            typer.echo(f"{token.name}  {scopes}  {token.rate:g}/s{state}")


@token_app.command("revoke")
def token_revoke(
    name: Annotated[str, typer.Argument(help="The token's name.")],
    db: Database = _DEFAULT_DATABASE,
) -> None:
    """Take a token's rights away, within two seconds on a running service."""
    _needs_extra()
    from regimekit.server.storage import access
    from regimekit.server.storage.database import opened, writing

    with opened(db) as engine, writing(engine) as connection:
        if not access.revoke_token(connection, name):
            raise _error(f"There is no token {name!r} that could be revoked.")
    typer.echo(f"revoked {name}")


def _say_counts(done: str, counts: dict[str, int]) -> None:
    told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
    typer.echo(f"{done}: {told or 'nothing, the database is empty'}")


def _needs_extra() -> None:
    for name in ("fastapi", "sqlalchemy", "uvicorn"):
        if find_spec(name) is None:
            raise _error(f"The service needs the package {name}: pip install 'regimekit[serve]'.")


def _error(message: str) -> Exception:
    """A RegimekitError; its module is imported only when something is wrong."""
    from regimekit.core.exceptions import RegimekitError

    return RegimekitError(message)
