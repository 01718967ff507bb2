"""Where we leave the paper's text, each with a switch (docs/deviations.md).

D1 to D9 mend places where the text breaks; D10 to D13 are of the second edition of our rule.
True is our way (`default`), False the paper's text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from regimekit.core.exceptions import RegimekitError, unknown


class Rule(NamedTuple):
    """Which deviations from the paper are on.

    Attributes:
        D1: score regimes by log N(y; yhat, S / w^2), which is unit-free.
        D2: measure residuals for the weight under the predictive S, not the noise R.
        D3: weight the first batch of a new regime too.
        D4: score each observation with the row's posterior inside the batch.
        D5: keep the self-transitions between batches; one structure sweep per batch.
        D6: a start row leads into regime 1; every regime keeps a table.
        D7: forecast by the mixture over regimes, informed inside the batch.
        D8: predictive variance has one R however far ahead; regimes move by the transitions.
        D9: a new regime starts from mu0 itself, shared by all particles.
        D10: a newborn asks which of its first observations is the first to be believed.
        D11: two regimes of a particle become one when the evidence says that they are.
        D12: births get one name only if their coefficients agree.
        D13: an outlier is a lag only if the next observation goes on from it.
    """

    D1: bool = True
    D2: bool = True
    D3: bool = True
    D4: bool = True
    D5: bool = True
    D6: bool = True
    D7: bool = True
    D8: bool = True
    D9: bool = True
    D10: bool = True
    D11: bool = True
    D12: bool = True
    D13: bool = True


RULES = {"default": Rule(), "paper": Rule(*[False] * 13)}


def read_rule(given: Any) -> Rule:
    """ "default", "paper", or a mapping such as {"D3": "paper"} (the rest as "default")."""
    if isinstance(given, Rule):
        return given
    if isinstance(given, str):
        if given not in RULES:
            raise unknown("rule", given, RULES)
        return RULES[given]
    if not isinstance(given, Mapping):
        raise RegimekitError(f"rule must be a name or a mapping of D1..D13, got {given!r}.")
    return _from_mapping(given)


def write_rule(rule: Rule) -> str | dict[str, str]:
    """What `read_rule` reads, as JSON."""
    for name, whole in RULES.items():
        if rule == whole:
            return name
    return {key: "default" if on else "paper" for key, on in rule._asdict().items()}


def _from_mapping(given: Mapping[str, Any]) -> Rule:
    switches: dict[str, bool] = {}
    for key, value in given.items():
        if key not in Rule._fields:
            raise unknown("rule", key, Rule._fields)
        if not isinstance(value, str) or value not in RULES:
            raise unknown(f"rule[{key!r}]", value, RULES)
        switches[key] = value == "default"
    return Rule(**switches)
