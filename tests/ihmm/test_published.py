"""The models of the paper's experiments, and the particles that a reader of the paper asks for."""

from __future__ import annotations

import numpy as np
import pytest

import regimekit as rk
from regimekit.core.exceptions import RegimekitError
from regimekit.ihmm.published import FITTED, MODELS, UNPRINTED


@pytest.mark.parametrize("experiment", [*FITTED, *UNPRINTED])
@pytest.mark.parametrize("model", MODELS)
def test_every_printed_model_can_be_made_and_follows_the_text(experiment: str, model: str) -> None:
    made = rk.paper(experiment, model, particles=10)
    settings = made.settings()
    assert made.name == model
    assert settings["rule"] == "paper"
    assert settings["particles"] == 10


def test_a_printed_model_runs_on_the_stream_of_its_experiment() -> None:
    stream = rk.data.synthetic_regression(seed=1, n=60)
    run = rk.paper("synthetic", "br_ihmm", particles=10).run(stream.y, stream.X)
    assert np.isfinite(run.mean).all()


@pytest.mark.parametrize(
    ("experiment", "model", "message"), [("wells", "ihmm", "experiment"), ("ofi", "auto", "model")]
)
def test_unknown_experiments_and_models_are_refused(
    experiment: str, model: str, message: str
) -> None:
    with pytest.raises(RegimekitError, match=message):
        rk.paper(experiment, model)


def test_particles_agree_with_regimes_and_transitions() -> None:
    rng = np.random.default_rng(2)
    y = np.repeat([0.0, 6.0, 0.0, 6.0], 60) + 0.5 * rng.standard_normal(240)
    model = rk.br_ihmm(noise=0.25, prior_var=100.0, particles=30, seed=3)
    assert model.particles() == []
    model.run(y)
    particles = model.particles()
    assert len(particles) == 30
    assert sum(p.weight for p in particles) == pytest.approx(1.0)
    for p in particles:
        k = len(p.regimes)
        assert p.mean.shape == (k, 1)
        assert p.counts.shape == (k, k)
        assert p.beta.shape == (k + 1,)
        assert p.beta.sum() == pytest.approx(1.0)
        assert min(p.alpha, p.gamma) > 0
    levels = {regime.id: regime.mean[0] for regime in model.regimes()}
    assert sorted(round(level) for level in levels.values()) == [0, 6]
    share = dict.fromkeys(levels, 0.0)
    for p in particles:
        for label in share.keys() & set(p.regimes):
            share[label] += p.weight
        for label, mean in zip(p.regimes, p.mean[:, 0], strict=True):
            if label in levels:
                assert mean == pytest.approx(levels[label], abs=0.5)
    for regime in model.regimes():
        assert share[regime.id] == pytest.approx(regime.probability, abs=1e-6)
    last = max(particles, key=lambda p: p.weight)
    assert levels[last.current] == pytest.approx(6.0, abs=0.5)
