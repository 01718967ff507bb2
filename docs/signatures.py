"""Write the type stub of the makers from the dataclasses that define their settings.

    python -m docs.signatures      writes src/regimekit/ihmm/signatures.pyi

The makers get their arguments at run time (`ihmm.makers.make_maker`), which a type checker does not
see. A test compares the file with `stub()`.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from regimekit.ihmm.emissions.garch import GarchSettings
from regimekit.ihmm.emissions.linear_gaussian import GaussianSettings
from regimekit.ihmm.emissions.student_t import StudentTSettings
from regimekit.ihmm.settings import RegimeSettings

STUB = Path(__file__).parents[1] / "src" / "regimekit" / "ihmm" / "signatures.pyi"
MAKERS = {
    "br_ihmm": GaussianSettings,
    "wolf_ihmm": GaussianSettings,
    "ihmm": GaussianSettings,
    "student_t_ihmm": StudentTSettings,
    "garch_ihmm": GarchSettings,
}
# Narrower than `Any` of the dataclass, and than what NumPy takes for an array.
ANNOTATIONS = {"batch": "int | Mapping[str, Any]"}
HEAD = '''\
"""Signatures of the makers for type checkers. Written by docs/signatures.py."""

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from numpy.typing import ArrayLike

from regimekit.core.maker import Pair, Rules, Terms
from regimekit.ihmm.deviations import Rule
from regimekit.ihmm.model import RegimeModel
from regimekit.ihmm.settings import WeightFunction

'''


def stub() -> str:
    """Return the text of the stub file."""
    shared = _typed_dict("Shared", "TypedDict, total=False", RegimeSettings)
    emissions = dict.fromkeys(MAKERS.values())
    own = [_typed_dict(_name(kind), "Shared, total=False", kind) for kind in emissions]
    makers = [
        f"def {maker}(**settings: Unpack[{_name(kind)}]) -> RegimeModel: ..."
        for maker, kind in MAKERS.items()
    ]
    return HEAD + "\n".join([shared, *own, *makers]) + "\n"


def _name(kind: type[Any]) -> str:
    return kind.__name__.removesuffix("Settings")


def _typed_dict(name: str, bases: str, kind: type[Any]) -> str:
    lines = [f"class {name}({bases}):"]
    for f in fields(kind):
        annotation = "ArrayLike" if f.type == "Any" else f.type
        annotation = ANNOTATIONS.get(f.name, annotation)
        lines.append(f"    {f.name}: {annotation}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    STUB.write_text(stub())
