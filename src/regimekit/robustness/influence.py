"""Posterior influence functions of a fitted model, over a grid of contaminated batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, numbers
from regimekit.ihmm.state import NO_LABEL
from regimekit.robustness.posterior import Array, BatchPosterior, Moment

Position = int | Sequence[int] | str
NEW = "new"


class Profile(NamedTuple):
    """Influence of each contamination; arrays of shape (G,).

    Attributes:
        state: KL divergence between the posteriors over (particle, regime).
        parameter: KL divergence between the posteriors of the coefficients, expected under the
            clean posterior over regimes.
        joint: state + parameter, the KL divergence between the joint posteriors.
        new_regime: posterior probability of a new regime given the contamination.
        clean_new_regime: the same given the clean batch, a number.
    """

    state: Array
    parameter: Array
    joint: Array
    new_regime: Array
    clean_new_regime: float


def state_pif(
    model: Any, contamination: Any, *, clean: Any, x: Any = None, position: Position = 0
) -> Any:
    """Return KL(regimes given the clean batch || regimes given the contaminated one).

    Args:
        model: a fitted model of the infinite HMM family; it is not changed.
        contamination: the values observed instead. One value (a number, or a vector for d > 1) or
            a grid of G of them, (G,) or (G, d), put at every contaminated position; or one per
            position, (G, P) or (G, P, d). NaN means that nothing was observed.
        clean: the observations expected next, (n,) or (n, d), at most the rest of a batch.
        x: their covariates, one row each, if the features need any.
        position: which of them are contaminated: an index, several, or "all".

    Returns:
        A number for one contamination, an array (G,) for a grid, in nats.

    Raises:
        RegimekitError: If the model is not fitted or an argument is invalid.

    Example:
        >>> import regimekit as rk
        >>> model = rk.br_ihmm(noise=0.25, batch=4, particles=20)
        >>> _ = model.run([0.1, -0.2, 0.0, 0.3] * 5)
        >>> near, far = state_pif(model, [1.0, 1e12], clean=[0.0, 0.1, 0.2, -0.1], position=2)
        >>> bool(0 <= near < 1 and 0 <= far < 1)
        True
    """
    paths = _Paths(model, contamination, clean, x, position)
    return paths.answer(discrete_kl(paths.before, paths.after))


def parameter_pif(
    model: Any,
    contamination: Any,
    *,
    clean: Any,
    x: Any = None,
    position: Position = 0,
    regime: int | str | None = None,
) -> Any:
    """Return the KL divergence between the posteriors of the coefficients.

    Only for linear-Gaussian emissions.

    Args:
        model, contamination, clean, x, position: as for `state_pif`.
        regime: the id of a regime, "new" for a new one, or None for the expectation under the
            clean posterior over regimes.

    Returns:
        A number for one contamination, an array (G,) for a grid, in nats.

    Raises:
        RegimekitError: If the emission is not linear-Gaussian or an argument is invalid.

    Example:
        >>> import regimekit as rk
        >>> model = rk.ihmm(noise=0.25, particles=20)
        >>> _ = model.run([0.1, -0.2, 0.0, 0.3] * 5)
        >>> small, large = parameter_pif(model, [1e4, 1e6], clean=[0.0], regime=0)
        >>> round(float(large / small))
        10000
    """
    paths = _Paths(model, contamination, clean, x, position)
    log_share = paths.before
    if regime is not None:
        log_share = _given_regime(paths.posterior, log_share, regime)
    return paths.answer(paths.expected_kl(np.exp(log_share)))


def joint_pif(
    model: Any, contamination: Any, *, clean: Any, x: Any = None, position: Position = 0
) -> Any:
    """Return the KL divergence between the joint posteriors of regimes and coefficients.

    By the chain rule it is the state PIF plus the parameter PIF expected under the clean posterior.

    Args:
        model, contamination, clean, x, position: as for `state_pif`.

    Returns:
        A number for one contamination, an array (G,) for a grid, in nats.

    Example:
        >>> import regimekit as rk
        >>> model = rk.br_ihmm(noise=0.25, batch=2, particles=20)
        >>> _ = model.run([0.1, -0.2, 0.0, 0.3] * 5)
        >>> batch = {"clean": [0.0, 0.1], "position": "all"}
        >>> both = state_pif(model, 9.0, **batch) + parameter_pif(model, 9.0, **batch)
        >>> abs(joint_pif(model, 9.0, **batch) - both) < 1e-9
        True
    """
    paths = _Paths(model, contamination, clean, x, position)
    return paths.answer(paths.profile().joint)


def profile(
    model: Any, contamination: Any, *, clean: Any, x: Any = None, position: Position = 0
) -> Profile:
    """Return all influences at once, and the probability of a new regime.

    Args:
        model, contamination, clean, x, position: as for `state_pif`.

    Returns:
        Arrays with one entry per contamination, also for a single one.

    Example:
        >>> import regimekit as rk
        >>> model = rk.wolf_ihmm(noise=0.25, particles=20)
        >>> _ = model.run([0.1, -0.2, 0.0, 0.3] * 5)
        >>> bool(profile(model, [1e6], clean=[0.0]).new_regime[0] > 0.999)
        True
    """
    return _Paths(model, contamination, clean, x, position).profile()


def along(direction: Any, lengths: Any, origin: Any = 0.0) -> Array:
    """Return contaminations (G, d) along a direction.

    Args:
        direction: (d,) vector other than 0.
        lengths: (G,) distances from `origin`.
        origin: (d,) or a number.

    Raises:
        RegimekitError: If the direction is not a finite vector other than 0.

    Example:
        >>> along([3.0, 4.0], [5.0, 10.0]).tolist()
        [[3.0, 4.0], [6.0, 8.0]]
    """
    vector = numbers("direction", direction).reshape(-1)
    length = float(np.linalg.norm(vector))
    if not (np.isfinite(length) and length > 0):
        raise RegimekitError(f"direction must be a finite vector that is not 0, got {direction!r}.")
    return numbers("origin", origin) + np.outer(numbers("lengths", lengths), vector / length)


def discrete_kl(log_p: Array, log_q: Array) -> Array:
    """Return KL(p || q) over the last axis, in nats.

    Args:
        log_p, log_q: (.., K) normalized log masses.
    """
    possible = log_p > -np.inf
    gap = np.where(possible, log_p, 0.0) - np.where(possible, log_q, 0.0)
    return np.asarray(np.maximum((np.exp(log_p) * gap).sum(axis=-1), 0.0))


def gaussian_kl(clean: Moment, contaminated: Moment) -> Array:
    """Return KL(N(mean, Sigma) || N(mean', Sigma')) of each hypothesis, (K,), in nats.

    Args:
        clean: the model given the clean batch.
        contaminated: the model given the contaminated batch.
    """
    gap = (contaminated.mean - clean.mean)[:, :, None]
    solved = np.linalg.solve(contaminated.root, np.concatenate([clean.root, gap], axis=2))
    log_det = np.linalg.slogdet(contaminated.root)[1] - np.linalg.slogdet(clean.root)[1]
    total = (solved**2).sum(axis=(1, 2)) - clean.mean.shape[1] + 2.0 * log_det
    return np.asarray(np.maximum(0.5 * total, 0.0))


class _Paths:
    """The model at the end of the clean batch and of each contaminated one.

    Attributes:
        before: (K,) log posterior of the hypotheses given the clean batch.
        after: (G, K) the same given each contaminated batch.
    """

    def __init__(
        self, model: Any, contamination: Any, clean: Any, x: Any, position: Position
    ) -> None:
        self.posterior = posterior = BatchPosterior(model)
        batch = posterior.read_batch(clean)
        rows = posterior.read_covariates(x, len(batch))
        at = read_position(position, len(batch))
        batches = _contaminate(batch, contamination, at)
        self.single = np.ndim(contamination) <= (0 if batch.shape[1] == 1 else 1)
        first = int(at.min())
        prefix = posterior.follow(posterior.start, batch[:first], rows[:first])
        self.clean = posterior.follow(prefix, batch[first:], rows[first:])
        self.contaminated = [
            posterior.follow(prefix, dirty[first:], rows[first:]) for dirty in batches
        ]
        self.before = posterior.log_posterior(self.clean.score)
        self.after = posterior.log_posterior(np.stack([path.score for path in self.contaminated]))

    def expected_kl(self, share: Array) -> Array:
        """Return the (G,) divergences of the coefficients, expected under shares (K,)."""
        if not self.posterior.gaussian:
            raise RegimekitError(
                "model must have a linear-Gaussian emission for the influence on coefficients, got "
                f"{type(self.posterior.emission).__name__}. Use state_pif."
            )
        divergence = np.stack([gaussian_kl(self.clean, path) for path in self.contaminated])
        return np.asarray(np.where(share > 0, share * divergence, 0.0).sum(axis=1))

    def profile(self) -> Profile:
        """Return all influences."""
        state = discrete_kl(self.before, self.after)
        parameter = self.expected_kl(np.exp(self.before))
        new = self.posterior.is_new
        return Profile(
            state,
            parameter,
            state + parameter,
            np.exp(self.after)[:, new].sum(axis=1),
            float(np.exp(self.before)[new].sum()),
        )

    def answer(self, values: Array) -> Any:
        """Return a number for one contamination, the array for a grid."""
        return float(values[0]) if self.single else values


def _given_regime(posterior: BatchPosterior, log_share: Array, regime: int | str) -> Array:
    """Return the log posterior of the hypotheses given the regime, however improbable it is."""
    ids = {NO_LABEL: NEW} | posterior.model.reporter.names
    found = [ids.get(label) for label in posterior.label.tolist()]
    own = np.array([name is not None and name == regime for name in found])
    if not own.any():
        known = sorted({name for name in found if isinstance(name, int)})
        raise RegimekitError(f'regime={regime!r} does not exist. Use one of {known} or "new".')
    if log_share[own].max() == -np.inf:
        # Without any mass all versions of the regime count equally.
        log_share = np.zeros_like(log_share)
    inside = np.where(own, log_share, -np.inf)
    inside = inside - inside.max()
    return np.asarray(inside - np.log(np.exp(inside).sum()))


def read_position(position: Position, n: int) -> NDArray[np.int64]:
    """Return the indices of the contaminated observations.

    Args:
        position: an index, several, or "all".
        n: number of observations.

    Raises:
        RegimekitError: If the position is invalid.
    """
    if isinstance(position, str):
        if position != "all":
            raise RegimekitError(f'position must be an index, several, or "all", got {position!r}.')
        return np.arange(n)
    at = np.atleast_1d(np.asarray(position))
    if at.dtype.kind != "i" or at.ndim != 1 or not at.size:
        raise RegimekitError(f"position must be whole numbers, got {position!r}.")
    if (at < -n).any() or (at >= n).any():
        raise RegimekitError(
            f"position must lie within the {n} observations of clean, got {position!r}."
        )
    return cast(NDArray[np.int64], np.unique(at % n))


def _contaminate(batch: Array, contamination: Any, at: NDArray[np.int64]) -> Array:
    """Return (G, n, d): the clean batch with each contamination at the positions `at`."""
    given = numbers("contamination", contamination)
    dim = batch.shape[1]
    grid = given[..., None] if dim == 1 else given
    if grid.ndim == 1:
        grid = grid[None]
    if grid.ndim == 2:
        grid = np.repeat(grid[:, None], at.size, axis=1)
    if grid.ndim != 3 or grid.shape[1:] != (at.size, dim) or not len(grid):
        raise RegimekitError(
            f"contamination must be a grid of observations of {dim} value(s), or of one for each "
            f"of the {at.size} position(s), got shape {given.shape}."
        )
    if np.isinf(grid).any():
        raise RegimekitError("contamination must be finite. Pass NaN for a missing value.")
    batches = np.repeat(batch[None], len(grid), axis=0)
    batches[:, at] = grid
    return batches
