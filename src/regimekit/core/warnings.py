"""Warnings about the data and the model, each emitted once."""

from __future__ import annotations

import warnings


class RegimekitWarning(UserWarning):
    """A possible problem in the data, settings or installation; the message has a remedy."""


def warn_once(emitted: list[str], key: str, message: str, stacklevel: int = 3) -> None:
    """Emit a warning once per key.

    Args:
        emitted: keys of the warnings emitted so far; `key` is added.
        key: key of the warning.
        message: its text.
        stacklevel: as for `warnings.warn`.
    """
    if key not in emitted:
        emitted.append(key)
        warnings.warn(message, RegimekitWarning, stacklevel=stacklevel)
