"""Linear emission with unknown noise: normal-inverse-gamma per regime, Student-t predictive.

    y = f' theta + e,   e ~ N(0, s2),   theta | s2 ~ N(mu, s2 V),   s2 ~ IG(a, b),   nu = 2 a
    y ~ t_nu(f' mu, (b / a) (1 + q)),   q = f' V f                       paper, app. heavy tails

For d > 1 it is the matrix-normal inverse-Wishart (`inverse_wishart`), of which
this is the case n = 2 a, Psi = 2 b. Without a weight the update is Bayes' rule and the score the
Student-t density: the paper's unknown-variance model. It is not robust: between two rows the
score of an outlier differs by (nu_2 - nu_1) log |y|, so the row with fewer visits gets it.

**One geometry.** Residuals are measured under S = G (1 + q), where G = exp E[log s2] =
b exp(-digamma(a)) is the geometric posterior mean of the noise variance. It exceeds the plug-in
b / a while the noise is uncertain (by 31 % at nu = 4) and tends to it: that is how doubt about
the variance counts for a fresh row. With z = |r| / sqrt(S) and the weight w^2(z):

**Score (D1).** log N(y; f' mu, S / w^2). Under IMQ it tends to -log|r| + log c - c^2 / 2 -
log(2 pi) / 2: no trace of a, b, mu or V is left, so an extreme outlier says nothing about the
regime, however often its rows were visited. A Student-t with scale S / w^2 would not do: its
limit still depends on nu.

**Update.** theta learns as with known noise, V^-1 += w^2 f f'. The variance learns from the
standardised innovation r^2 / (1 + q), which has mean s2 in every row, fresh or old:

    a += w^2 / 2,   b += w^2 r^2 / (2 kappa (1 + q))

An outlier adds next to nothing to a (it is no visit) and to b at most c^2 G / (2 kappa), however
large. Raising the likelihood to the power w^2 would divide by 1 + w^2 q instead; for a fresh
row (q large) that lets an outlier add (1 + q) times as much, so the first value of a regime
could make it deaf. At w^2 = 1 both are Bayes' rule.

**Consistency.** kappa = 1 underestimates the noise, for the weight takes more from large
residuals than from small ones; and since z is measured under the estimate, the loss feeds on
itself. With kappa = 1 and IMQ the estimate solves E[w^2 (z^2 - 1)] = 0: the scale of a Student-t
with c^2 degrees of freedom fitted to the residuals. So

    kappa = E[w^2 z^2] / E[w^2]   for z ~ N(0, 1)        (d > 1: z^2 ~ chi^2_d, over d)

which makes the estimate consistent for Gaussian noise (at c = 2 it is 31 % too small without).
w^2 (z^2 - kappa) rises with z under IMQ and is bounded: a monotone M-estimate of scale, with one
solution and a breakdown point of kappa / (kappa + c^2). The price: outliers count for more. At
c = 2 a share of 5 % of them, however far, makes the estimate 59 % too large, where without the
correction the two errors happen to cancel. For a row with few visits one could ask instead that
E log s2 does not drift for z from its own predictive; with residuals measured under G that moves
kappa by less than 2 % under IMQ (c = 2, nu = 4), so a constant serves.

Rescaling y by s, with prior_mean by s, prior_var and noise_scale by s^2, changes no regime.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from regimekit.core.exceptions import RegimekitError, SnapshotError, numbers, positive
from regimekit.ihmm.emissions.base import Array, EmissionSpec, Rows, Shape
from regimekit.ihmm.emissions.conjugate import Conjugate, Natural
from regimekit.ihmm.emissions.inverse_wishart import WishartFacts, WishartRows, WishartWork
from regimekit.ihmm.emissions.linear import blank_steps
from regimekit.ihmm.emissions.matrices import check_roots, read_covariance, read_vector
from regimekit.ihmm.weights import BROAD_DOF, CONTAMINATION, NONE, Scoring, update_weight2

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(32)


@dataclass(frozen=True)
class StudentSpec(EmissionSpec):
    """Settings of the emission with unknown noise.

    Attributes:
        prior_mean: of the coefficients: a number, or a vector (coordinate by coordinate).
        prior_var: scale of a coefficient around it, in the units of y^2 as for known noise:
            theta ~ t_{2 a0}(prior_mean, prior_var). V0 = prior_var / (b0 / a0). For d > 1 a number,
            or a vector or matrix over the features, for a coordinate of typical noise.
        noise_shape: a0. 2 a0 counts the observations that the guess of the noise is worth, and
            is the degrees of freedom of a new regime: above 1 its standard deviation is finite.
        noise_scale: b0, so that b0 / a0 is the guess of the noise variance: a number, or for
            d > 1 a (d, d) matrix.
        consistent: correct the variance for what the weight takes away (kappa above).
    """

    prior_mean: Any = 0.0
    prior_var: Any = 1.0
    noise_shape: float = 3.0
    noise_scale: Any = 0.75
    consistent: bool = True

    def build(self, shape: Shape, scoring: Scoring) -> NormalInverseGamma:
        return NormalInverseGamma(shape, self, scoring)

    def dim_hint(self) -> int | None:
        scale = numbers("noise_scale", self.noise_scale)
        if scale.ndim not in (0, 2):
            raise RegimekitError(
                f"noise_scale must be a number or a (d, d) matrix, got {self.noise_scale!r}."
            )
        return int(scale.shape[0]) if scale.ndim else None

    def check(self) -> None:
        read_covariance("noise_scale", self.noise_scale, self.dim_hint() or 1)
        if math.isinf(positive("noise_shape", self.noise_shape)):
            raise RegimekitError("noise_shape must be finite; for known noise use br_ihmm.")
        for name, read in (("prior_mean", read_vector), ("prior_var", read_covariance)):
            given = numbers(name, getattr(self, name))
            read(name, given, given.shape[0] if given.ndim else 1)


class NormalInverseGamma(Conjugate):
    """Emission y ~ N(Theta f, Sigma) with Theta and Sigma unknown in every regime.

    Args:
        shape: sizes of y and of the features.
        spec: prior of the coefficients and of the noise.
        scoring: weight and deviations.
    """

    def __init__(self, shape: Shape, spec: StudentSpec, scoring: Scoring) -> None:
        if shape.dim > 1 and not shape.shared:
            raise RegimekitError(
                "features that share coefficients between the coordinates of y need known noise; "
                "use br_ihmm."
            )
        self.shape, self.scoring = shape, _plain_if_unbounded(scoring)
        d, m = shape.dim, shape.width
        self.prior_dof = 2.0 * positive("noise_shape", spec.noise_shape)
        self.prior_noise = read_covariance("noise_scale", spec.noise_scale, d) / spec.noise_shape
        self.prior_mean = read_vector("prior_mean", spec.prior_mean, d * m).reshape(d, m)
        typical = math.exp(float(np.linalg.slogdet(self.prior_noise)[1]) / d)
        spread = read_covariance("prior_var", spec.prior_var, m) / typical
        self.prior_root: Array = np.asarray(np.linalg.cholesky(spread), np.float64)
        factor = np.linalg.cholesky(self.prior_dof * self.prior_noise)
        self.prior_factor: Array = np.asarray(factor, np.float64)
        kind = self.scoring.kind if spec.consistent else NONE
        kappa = [consistency(kind, scoring.threshold, seen) for seen in range(1, d + 1)]
        self.facts = WishartFacts(np.array(kappa))
        if scoring.kind == CONTAMINATION and self.prior_dof <= BROAD_DOF + 2:
            raise RegimekitError(
                f"noise_shape must exceed {BROAD_DOF / 2 + 1:g} under contamination, got "
                f"{spec.noise_shape:g}: a regime's tail must be lighter than that of outliers."
            )

    def blank(self, capacity: int) -> WishartRows:
        d, m = self.shape.dim, self.shape.width
        return WishartRows(
            np.zeros((capacity, d, m)),
            np.zeros((capacity, m, m)),
            np.zeros((capacity, d, d)),
            np.zeros(capacity),
        )

    def write_prior(self, rows: Rows, row: int) -> None:
        mean, root, factor, dof = rows
        mean[row], root[row], factor[row] = self.prior_mean, self.prior_root, self.prior_factor
        dof[row] = self.prior_dof

    def work(self, islands: int, candidates: int, longest: int) -> WishartWork:
        d, at = self.shape.dim, (islands, candidates)
        steps = blank_steps(*at, longest, d, 1, self.shape.width)
        return WishartWork(steps, np.zeros((*at, d, d)), *(np.zeros(at) for _ in range(3)))

    def design(self, features: Array) -> Array:
        return features[:1] if features.ndim == 2 else features[None]

    def designs(self, features: Array) -> Array:
        return features if features.ndim == 3 else features[:, None]

    def check_rows(self, rows: Rows, live: NDArray[np.int64]) -> None:
        check_roots(rows.root[live])
        check_roots(rows.factor[live])
        if not (rows.dof[live] > 0).all():
            raise SnapshotError("The snapshot holds a regime without degrees of freedom.")

    def noise_covariance(self) -> Array:
        """The prior's guess, as no regime's noise is known."""
        return self.prior_noise

    def coefficients(self, rows: Rows, row: int) -> tuple[Array, Array]:
        mean, root, factor, dof = rows
        relative = (root[row] ** 2).sum(axis=1)
        scale = np.multiply.outer((factor[row] ** 2).sum(axis=1), relative)
        variance = scale / (dof[row] - 2.0) if dof[row] > 2.0 else np.full(scale.shape, np.inf)
        return mean[row].ravel().copy(), np.sqrt(variance).ravel()

    def natural(self, rows: Rows, row: int) -> tuple[Array, Array, Array, float]:
        """V^-1, M V^-1, Psi + M V^-1 M' and nu."""
        mean, root, factor, dof = (array[row] for array in rows)
        inverse = np.linalg.inv(root)
        precision = inverse.T @ inverse
        shift = mean @ precision
        return precision, shift, factor @ factor.T + shift @ mean.T, dof

    def log_partition(self, *natural: Any) -> float:
        precision, shift, square, dof = natural
        d = len(square)
        n = dof + d - 1
        psi = square - shift @ np.linalg.solve(precision, shift.T)
        logs = [np.log(np.diag(np.linalg.cholesky(part))).sum() for part in (precision, psi)]
        return float(special.multigammaln(n / 2, d) - d * logs[0] - n * logs[1])

    def write_natural(self, rows: Rows, row: int, natural: Natural) -> None:
        precision, shift, square, dof = natural
        spread = np.linalg.inv(precision)
        mean = shift @ spread
        rows.mean[row], rows.dof[row] = mean, dof
        rows.root[row] = np.linalg.cholesky((spread + spread.T) / 2)
        rows.factor[row] = np.linalg.cholesky(square - mean @ precision @ mean.T)


def _plain_if_unbounded(scoring: Scoring) -> Scoring:
    """An infinite threshold is no weight, in scores too."""
    plain = math.isinf(scoring.threshold) and scoring.kind != CONTAMINATION
    return scoring._replace(kind=NONE) if plain else scoring


@lru_cache(maxsize=256)
def consistency(kind: int, threshold: float, dim: int) -> float:
    """kappa = E[w^2 z^2] / (d E[w^2]) for z^2 ~ chi^2_d, by quadrature.

    Example:
        >>> from regimekit.ihmm.weights import IMQ, NONE
        >>> consistency(NONE, 2.0, 1)
        1.0
        >>> round(consistency(IMQ, 2.0, 1), 3)
        0.746
    """
    if kind in (NONE, CONTAMINATION):
        return 1.0
    bends = threshold * 4.0 ** np.arange(-2, 3)  # where the weight turns
    farthest = math.sqrt(dim) + 12.0
    edges = np.unique(np.append(bends[bends < farthest], np.linspace(0.0, farthest, 17)))
    half = np.diff(edges)[:, None] / 2
    z = (edges[:-1, None] + half * (1 + _NODES)).ravel()
    w2 = np.array([update_weight2(kind, length, threshold) for length in z])
    mass = (half * _NODE_WEIGHTS).ravel() * w2 * np.exp((dim - 1) * np.log(z) - z * z / 2)
    return float((mass * z * z).sum() / (dim * mass.sum()))
