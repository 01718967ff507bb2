"""Log lines: one JSON object each, or plain text for a person at a terminal."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

_PLAIN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonLines(logging.Formatter):
    """A record as one line of JSON; whatever was given as `extra` becomes a field."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **extras(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class Plain(logging.Formatter):
    """A record as a line of text, its fields behind it."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = "".join(f" {name}={value}" for name, value in extras(record).items())
        text = f"{clock} {record.levelname.lower():7} {record.getMessage()}{fields}"
        return text + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """What a caller gave beside the message."""
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


def configure(form: str) -> None:
    """Send the service's log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else Plain())
    for name in ("regimekit.server", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    logging.getLogger("uvicorn.access").disabled = True
