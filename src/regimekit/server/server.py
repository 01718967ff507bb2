"""The process: a socket, the application on it, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from regimekit.core.exceptions import RegimekitError
from regimekit.server.app import create_app
from regimekit.server.config import Config
from regimekit.server.logs import configure
from regimekit.server.service import Service
from regimekit.server.storage import access
from regimekit.server.storage.database import prepare

_log = logging.getLogger("regimekit.server")


class Server(uvicorn.Server):
    """Uvicorn that tells live connections to end before it waits for them."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop taking, let what is under way finish; a second interrupt does not wait.

        The signal is not raised again afterwards: an orderly end is a success.
        """
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._service.stopping.set()
        self._service.hub.stop()


def run(config: Config) -> None:
    """Serve until told to stop."""
    configure(config.log_format)
    _check(config)
    app = create_app(config)
    listening = _listen(config)
    settings = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        proxy_headers=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=30,
        h11_max_incomplete_event_size=64 * 1024,
        ssl_certfile=config.certificate,
        ssl_keyfile=config.private_key,
    )
    _greet(config, listening, app)
    server = Server(settings, app.state.service)
    server.run(sockets=[listening])
    if not server.started:
        raise SystemExit(1)


def _check(config: Config) -> None:
    if (config.certificate is None) != (config.private_key is None):
        raise RegimekitError("TLS needs both --certificate and --private-key.")
    engine = prepare(config.db)
    with engine.connect() as connection:
        tokens = [t for t in access.list_tokens(connection) if t.revoked is None]
    engine.dispose()
    if not tokens and (config.require_token or not config.on_loopback):
        _log.warning("there is no token yet, so nobody may use the API; see `regimekit token add`")


def _listen(config: Config) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise RegimekitError(
            f"--host {config.host} --port {config.port} cannot be listened on: {error}."
        ) from None
    listening.listen(1024)
    return listening


def _greet(config: Config, listening: socket.socket, app: FastAPI) -> None:
    scheme = "http" if config.certificate is None else "https"
    host = f"[{config.host}]" if ":" in config.host else config.host
    port = listening.getsockname()[1]
    _log.info("listening", extra={"url": f"{scheme}://{host}:{port}", "version": app.version})
