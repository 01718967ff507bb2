"""What is told without being an error: words about the data and the model, each once."""

from __future__ import annotations

import warnings


class RegimekitWarning(UserWarning):
    """Something in the data or the settings that is worth a look; the message says the cure."""


def say_once(said: list[str], what: str, message: str, stacklevel: int = 3) -> None:
    """Warn, unless `said` holds `what`; then it does."""
    if what not in said:
        said.append(what)
        warnings.warn(message, RegimekitWarning, stacklevel=stacklevel)
