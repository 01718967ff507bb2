"""Warnings about the data and the model, each emitted once."""

from __future__ import annotations

import warnings


class RegimekitWarning(UserWarning):
    """A possible problem in the data, settings or installation; the message has a remedy."""


def say_once(said: list[str], what: str, message: str, stacklevel: int = 3) -> None:
    """Emit a warning once per key.

    Args:
        said: keys of the warnings emitted so far; `what` is added.
        what: key of the warning.
        message: its text.
        stacklevel: as for `warnings.warn`.
    """
    if what not in said:
        said.append(what)
        warnings.warn(message, RegimekitWarning, stacklevel=stacklevel)
