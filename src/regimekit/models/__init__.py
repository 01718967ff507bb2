"""The models: the infinite HMM family and every system it is compared with.

`regimekit.models` is this package and, called, the list of the models by name: a name of the public
surface that is also a subpackage must be both, whichever of the two is imported first.
"""

from __future__ import annotations

import sys
from types import ModuleType


class _Models(ModuleType):
    """The package as a function of no arguments."""

    def __call__(self) -> dict[str, str]:
        from regimekit.models import registry

        return registry.models()


sys.modules[__name__].__class__ = _Models
