"""Scores in which our models are better: paired differences by seed, with intervals."""

from __future__ import annotations

from typing import NamedTuple

from paper.parts import Part
from paper.plan import Plan
from paper.settings import FIRST, PAPER, PRINTED, SECOND, UNTUNED, VARIANTS, title
from paper.tables import Item, Made, Results, Table, Value, measure, untuned


class Claim(NamedTuple):
    """A score on a stream by which models are compared."""

    stream: str
    score: str
    lower: bool = True  # whether lower values are better
    bocd: tuple[str, ...] = ("bocd", "least_squares")


CLAIMS = (
    Claim("synthetic", "rmse"),
    Claim("synthetic", "adjusted_rand", lower=False, bocd=()),
    Claim("electricity", "rmse_observed"),
    Claim("ofi", "rmse_observed"),
    Claim("well_log", "mae", bocd=("dsm_bocd",)),
    Claim("well_log", "ppv", lower=False, bocd=("dsm_bocd",)),
    Claim("well_log", "tpr", lower=False, bocd=("dsm_bocd",)),
    Claim("iid_gauss", "rmse", bocd=()),
    Claim("iid_gauss", "adjusted_rand", lower=False, bocd=()),
    Claim("iid_t", "rmse", bocd=()),
    Claim("iid_t", "adjusted_rand", lower=False, bocd=()),
)


def _pairs(claim: Claim) -> list[tuple[str, str, str]]:
    """Return (our variant, rival, its variant): tuned against tuned, untuned against untuned."""
    tuned = [(SECOND, "br_ihmm", variant) for variant in (PRINTED, PAPER, FIRST)]
    for rival in ("wolf_ihmm", "ihmm", *claim.bocd):
        tuned += [(SECOND, rival, v) for v in VARIANTS[rival] if v in (PAPER, SECOND)]
    untuned = [(UNTUNED, rival, UNTUNED) for rival in ("wolf_ihmm", "ihmm", *claim.bocd)]
    if claim.score in ("rmse", "rmse_observed", "mae"):
        untuned += [(UNTUNED, "last_value", UNTUNED), (SECOND, "last_value", UNTUNED)]
    return [*tuned, *untuned]


def _needed(plan: Plan) -> list[Part]:
    parts: list[Part] = []
    for claim in CLAIMS:
        for ours, rival, variant in _pairs(claim):
            parts += plan.parts(claim.stream, "br_ihmm", ours)
            parts += plan.parts(claim.stream, rival, variant)
    return parts


def _ahead(results: Results) -> Made:
    rows: list[list[Value]] = []
    for claim in CLAIMS:
        for ours, rival, variant in _pairs(claim):
            mine = results.plan.parts(claim.stream, "br_ihmm", ours)
            others = results.plan.parts(claim.stream, rival, variant)
            found = results.paired(mine, others, claim.score)
            label = title("br_ihmm", ours)
            row: list[Value] = [claim.stream, measure(claim.score), label]
            row.append(f"{rival}: {title(rival, variant)}")
            if found is None:
                rows.append([*row, results.why_not(others[0]) or "not defined", ""])
            else:
                rows.append([*row, found, found.verdict(claim.lower)])
    columns = ["stream", "measure", "br_ihmm", "against", "difference [95 %]", "br_ihmm is"]
    asked = [
        (c.stream, *one)
        for c in CLAIMS
        for o, r, v in _pairs(c)
        for one in (("br_ihmm", o), (r, v))
    ]
    caption = (
        "Each row compares two models run by run: the mean difference over n pairs of runs with "
        "the same seed, and in brackets the interval that contains the true one with 95 % "
        "confidence. *ahead* and *behind* are printed where the interval does not contain 0, "
        "*undecided* where it does."
    )
    return Made([Table(columns, rows, f"{caption} {untuned(asked)}".strip())])


ITEMS = (
    Item(
        "ahead",
        "Where br_ihmm is ahead, and where it is not",
        "our own: paired differences of the tables",
        "A difference is br_ihmm's score less the rival's with the same seed, averaged; the "
        "interval is Student's over seeds, at 95 % each, without a correction for their number. "
        "On a generated stream each seed draws a new stream and model, so the interval refers to "
        "such streams. On a real series only the model's draws differ, so it refers to that series "
        "alone; a rival that draws nothing enters as one number.",
        _ahead,
        _needed,
    ),
)
