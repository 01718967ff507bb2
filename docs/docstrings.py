"""The house writes `Example:` in docstrings, the reader of docstrings wants `Examples:`."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension


class Examples(Extension):
    """Lets examples be shown as code."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rename the section in the docstring of whatever was found."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.M
            )
