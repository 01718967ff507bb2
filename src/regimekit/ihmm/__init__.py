"""The online infinite hidden Markov model of the paper.

`regimekit.ihmm` is this subpackage and, called, the maker of the model `ihmm`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """A subpackage that shares its name with a public function."""

    def __call__(self, **settings: Any) -> Any:
        from regimekit.ihmm.makers import ihmm

        return ihmm(**settings)

    @property
    def __signature__(self) -> Any:
        from inspect import signature

        from regimekit.ihmm.makers import ihmm

        return signature(ihmm)


sys.modules[__name__].__class__ = _CallableModule
