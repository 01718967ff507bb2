"""Extension for mkdocstrings: docstrings have `Example:`, its parser expects `Examples:`."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension


class Examples(Extension):
    """Show examples as code."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rename the section in the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.M
            )
