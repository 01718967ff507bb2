"""Commands of the service: serve, token, backup, restore. They need the extra `serve`.

The modules of the service are imported when a command runs, so the other commands of regimekit
work without the packages of the extra.
"""

from __future__ import annotations

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
    """Add the commands of the service to the command line."""
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
    demo: Annotated[bool, typer.Option("--demo", help="Feed a demonstration stream.")] = False,
    workers: Annotated[int, typer.Option(help="Worker processes (0: one per core).")] = 0,
    memory: Annotated[int, typer.Option(help="Number of models in memory.", min=1)] = 1000,
    memory_mb: Annotated[
        int, typer.Option(help="Size of the models in memory, in megabytes.", min=1)
    ] = 1024,
    snapshot_every: Annotated[
        int, typer.Option(help="Observations between snapshots of a model.", min=1)
    ] = 500,
    require_token: Annotated[
        bool,
        typer.Option(
            "--require-token", help="Ask local requests for a token too (behind a proxy)."
        ),
    ] = False,
    allow_private_webhooks: Annotated[
        bool, typer.Option("--allow-private-webhooks", help="Let webhooks reach private networks.")
    ] = False,
    smtp: Annotated[
        str | None,
        typer.Option(
            envvar="REGIMEKIT_SMTP", help="smtp[s]://USER:PASSWORD@HOST:PORT for e-mail alerts."
        ),
    ] = None,
    mail_from: Annotated[
        str, typer.Option(help="Sender of e-mail alerts.")
    ] = "regimekit@localhost",
    public_url: Annotated[
        str | None, typer.Option(help="Address of the page, for links in alerts.")
    ] = None,
    stream_metrics: Annotated[
        int, typer.Option(help="Number of streams with metrics of their own.", min=0, max=10_000)
    ] = 100,
    certificate: Annotated[Path | None, typer.Option(help="TLS: certificate file (PEM).")] = None,
    private_key: Annotated[Path | None, typer.Option(help="TLS: private key file (PEM).")] = None,
    log: Annotated[
        str, typer.Option(help="Log format: json, text or auto (text on a terminal).")
    ] = "auto",
) -> None:
    """Serve streams over HTTP, with a live page."""
    _require_packages()
    from regimekit.server.app import run
    from regimekit.server.config import Config, default_workers
    from regimekit.server.storage.database import check_unused

    if log not in ("json", "text", "auto"):
        raise _error(f"--log must be json, text or auto, got {log!r}.")
    form = ("text" if sys.stderr.isatty() else "json") if log == "auto" else log
    with tempfile.TemporaryDirectory(prefix="regimekit-demo-") as folder:
        fallback = f"sqlite:///{folder}/demo.db" if demo else _DEFAULT_DATABASE
        check_unused(db or fallback)
        run(
            Config(
                db=db or fallback,
                host=host,
                port=port,
                workers=workers or (1 if demo else default_workers()),
                models_in_memory=memory,
                memory_mb=memory_mb,
                snapshot_every=snapshot_every,
                require_token=require_token,
                allow_private_webhooks=allow_private_webhooks,
                smtp=smtp,
                mail_from=mail_from,
                public_url=public_url,
                stream_metrics=stream_metrics,
                demo=demo,
                certificate=None if certificate is None else str(certificate),
                private_key=None if private_key is None else str(private_key),
                log_format=form,
            )
        )


def backup(
    file: Annotated[Path, typer.Argument(help="File to write.")], db: Database = _DEFAULT_DATABASE
) -> None:
    """Write the whole database to one file; the service may be running."""
    _require_packages()
    from regimekit.server.storage import database

    _print_counts("backed up", database.backup(db, file))


def restore(
    file: Annotated[Path, typer.Argument(help="A backup file.")], db: Database = _DEFAULT_DATABASE
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
    db: Database = _DEFAULT_DATABASE,
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
def token_list(db: Database = _DEFAULT_DATABASE) -> None:
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
    name: Annotated[str, typer.Argument(help="Name of the token.")],
    db: Database = _DEFAULT_DATABASE,
) -> None:
    """Revoke a token; a running service rejects it after at most two seconds."""
    _require_packages()
    from regimekit.server.storage import tokens
    from regimekit.server.storage.database import database, write_transaction

    with database(db) as engine, write_transaction(engine) as connection:
        if not tokens.revoke(connection, name):
            raise _error(f"There is no active token {name!r}.")
    typer.echo(f"revoked {name}")


def _print_counts(done: str, counts: dict[str, int]) -> None:
    parts = [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]
    typer.echo(f"{done}: {', '.join(parts) or 'nothing, the database is empty'}")


def _require_packages() -> None:
    """Raise RegimekitError if a package of the extra `serve` is missing."""
    for name in ("fastapi", "sqlalchemy", "uvicorn"):
        if find_spec(name) is None:
            raise _error(f"The service needs the package {name}: pip install 'regimekit[serve]'.")


def _error(message: str) -> Exception:
    """Return a RegimekitError; its module is imported only if needed."""
    from regimekit.core.exceptions import RegimekitError

    return RegimekitError(message)
