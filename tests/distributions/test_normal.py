"""The standard normal distribution against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from regimekit.distributions.normal import log_normal_cdf, normal_cdf, normal_quantile

GRID = np.concatenate([-np.geomspace(1e-8, 37.0, 300), [0.0], np.geomspace(1e-8, 37.0, 300)])


def test_the_cdf_is_exact_in_both_tails() -> None:
    np.testing.assert_allclose(normal_cdf(GRID), special.ndtr(GRID), rtol=1e-12)
    assert normal_cdf([[0.0], [-50.0]]).tolist() == [[0.5], [0.0]]


@pytest.mark.parametrize("z", [*GRID[::20], -19.999, -20.001, -1e3, -1e10, 1e10])
def test_the_log_of_the_cdf_is_exact_where_the_cdf_vanishes(z: float) -> None:
    assert log_normal_cdf(float(z)) == pytest.approx(special.log_ndtr(z), rel=1e-12)


def test_quantiles_invert_the_cdf() -> None:
    p = np.concatenate([np.geomspace(1e-300, 0.5, 100), 1.0 - np.geomspace(1e-15, 0.5, 100)])
    np.testing.assert_allclose(normal_quantile(p), special.ndtri(p), rtol=1e-12, atol=1e-15)
