"""Where a question about sensitivity is asked: what a model has learnt, or what it is told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from regimekit.core.exceptions import RegimekitError, positive, whole
from regimekit.ihmm.emissions.linear_gaussian import GaussianSpec
from regimekit.ihmm.hdp import log_transition_row
from regimekit.ihmm.makers import br_ihmm
from regimekit.ihmm.model import RegimeModel
from regimekit.ihmm.prior_odds import Chances, prior_chances
from regimekit.ihmm.weights import CONTAMINATION
from regimekit.preprocessing import features as feature_maps
from regimekit.robustness.expected_evidence import Terms

_VISITS = 30  # batches that the present regime has been visited for, where no model says


class Situation(NamedTuple):
    """Where the question is asked, in units of the noise and relative to the present level."""

    batch: int
    terms: Terms
    rate: float
    branches: int
    prior_mean: float
    prior_var: float
    present_var: float
    visits: float
    chances: Chances
    particles: int

    @property
    def threshold(self) -> float:
        scoring = self.terms.scoring
        return math.inf if scoring.kind == CONTAMINATION else scoring.threshold


def read_model(model: Any) -> RegimeModel:
    """A level model of the family, from itself or from settings."""
    read = br_ihmm(**model) if isinstance(model, Mapping) else model
    if not isinstance(read, RegimeModel) or not isinstance(read.spec, GaussianSpec):
        raise RegimekitError(
            "model must be ihmm, wolf_ihmm or br_ihmm, or a mapping of br_ihmm settings, "
            f"got {type(model).__name__}."
        )
    level = feature_maps.intercept().to_json()
    if read.features.to_json() != level or (read.dim or 1) != 1:
        raise RegimekitError(
            "sensitivity answers for a level of one coordinate; pass the settings of such a "
            'model, {"batch": .., "noise": .., "prior_var": ..}.'
        )
    if not isinstance(read.chosen.batch, (int, np.integer)):
        raise RegimekitError(
            "batch must be a whole number here; an adaptive one has no one answer."
        )
    return read


def situation_of(model: RegimeModel, visits: int | None, openness: float | None) -> Situation:
    """From settings, or from what a fitted model has learnt."""
    assert isinstance(model.spec, GaussianSpec)
    noise = float(np.ravel(model.spec.noise)[0])
    prior_mean, prior_var = (
        float(np.ravel(a)[0]) for a in (model.spec.prior_mean, model.spec.prior_var)
    )
    batch = int(model.chosen.batch)
    stays = float(_VISITS if visits is None else whole("visits", visits))
    level, enter = prior_mean, None
    if model.engine is not None and model.regimes() and visits is None:
        level, stays, enter = _learnt(model)
    if openness is not None:
        enter = math.log(positive("openness", openness) / (stays + 1.0))
    chances = prior_chances(stays, model.chosen.concentration())
    chances = chances if enter is None else chances._replace(enter=enter)
    precision = noise / prior_var + stays * batch
    rate = _rate(model)
    particles = model.chosen.particles // model.chosen.n_islands()  # of one island
    return Situation(
        batch,
        Terms.of(model.chosen.scoring(), rate),
        rate,
        batch // 2 + 1 if model.chosen.plan().newborn else 0,
        (prior_mean - level) / math.sqrt(noise),
        prior_var / noise,
        1.0 / precision,
        stays,
        chances,
        particles,
    )


def _rate(model: RegimeModel) -> float:
    """eps: as learnt, or as guessed; 0 without contamination."""
    if model.engine is not None:
        return model.engine.outlier_rate
    mixed = model.chosen.scoring().kind == CONTAMINATION
    return float(model.chosen.outlier_rate) if mixed else 0.0


def _learnt(model: RegimeModel) -> tuple[float, float, float]:
    """Level and visits of the reported regime, and the log odds of a new one against staying."""
    engine = model.engine
    assert engine is not None
    p, present = engine.state.particles, engine.reported
    names = model.reporter.names
    regime = next((r for r in model.regimes() if r.id == names.get(present)), model.regimes()[-1])
    row = np.empty(p.log_beta.shape[1])
    new, stay, sticky = 0.0, 0.0, engine.plan.concentration.sticky
    for i in np.flatnonzero(p.current >= 0):
        log_transition_row(p, int(i), sticky, row)
        omega = math.exp(p.log_weight[i])
        new += omega * math.exp(row[p.n_regimes[i]])
        stay += omega * math.exp(row[p.current[i]])
    visits = max(1.0, regime.visits / int(model.chosen.batch))
    return float(regime.mean[0]), visits, math.log(new / stay)
