"""The deviations from the text of the paper, each with a switch (docs/deviations.md).

D1 to D9 correct places where the text fails, D12, D13 and D16 to D18 are additions, D14 and D15 are
steps of the paper's own protocol (D10 and D11 were removed, see docs/adr/). True is the default
rule, False the text of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from regimekit.core.exceptions import RegimekitError, unknown


class Rule(NamedTuple):
    """Which deviations from the paper are switched on.

    Attributes:
        D1: score regimes by log N(y; yhat, S / w^2), which does not depend on the units of y.
        D2: measure residuals for the weight under the predictive covariance S, not the noise R.
        D3: weight the first batch of a new regime too.
        D4: score each observation with the posterior of the row inside the batch.
        D5: keep the self-transitions between batches; one structure sweep per batch.
        D6: a start row leads into regime 1; every regime keeps a table.
        D7: forecast by the mixture over regimes, informed by the batch so far.
        D8: the predictive variance contains R once, however far ahead; regimes move by the
            transition matrix. The text has b R, in the score of the b-th observation too.
        D9: a new regime starts from mu0 itself, shared by all particles.
        D12: new regimes get one label only if their coefficients agree.
        D13: an outlier is used as a lag only if the next observation continues from it.
        D14: a change is dated to its first observation, not to the start of its batch.
        D15: the evidence of a batch multiplies the weight of a particle (line 6 replaces it).
        D16: the prior of a new regime follows the stream if it does not reach most recent values.
        D17: a distant regime that was not visited lately loses weight in forecasts.
        D18: an outlier rate far above the first guess has a shorter memory.
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
    D12: bool = True
    D13: bool = True
    D14: bool = True
    D15: bool = True
    D16: bool = True
    D17: bool = True
    D18: bool = True


RULES = {"default": Rule(), "paper": Rule(*[False] * len(Rule._fields))}


def read_rule(given: Any) -> Rule:
    """Return the rule of a setting.

    Args:
        given: "default", "paper", or a mapping such as {"D3": "paper"}; deviations that it does
            not name are as in "default".

    Raises:
        RegimekitError: If `given` is none of these.
    """
    if isinstance(given, Rule):
        return given
    if isinstance(given, str):
        if given not in RULES:
            raise unknown("rule", given, RULES)
        return RULES[given]
    if not isinstance(given, Mapping):
        raise RegimekitError(f"rule must be a name or a mapping of D1..D18, got {given!r}.")
    switches: dict[str, bool] = {}
    for key, value in given.items():
        if key not in Rule._fields:
            raise unknown("rule", key, Rule._fields)
        if not isinstance(value, str) or value not in RULES:
            raise unknown(f"rule[{key!r}]", value, RULES)
        switches[key] = value == "default"
    return Rule(**switches)


def write_rule(rule: Rule) -> str | dict[str, str]:
    """Return the JSON form of a rule, the input of `read_rule`."""
    for name, whole in RULES.items():
        if rule == whole:
            return name
    return {key: "default" if on else "paper" for key, on in rule._asdict().items()}
