"""Posterior influence functions of a fitted model, over a grid of contaminated batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, numbers
from regimekit.ihmm.emissions.base import Array, Rows
from regimekit.ihmm.emissions.linear_gaussian import LinearGaussian
from regimekit.ihmm.state import UNBORN
from regimekit.robustness.posterior import Moment, Outlook, read_batch

Position = int | Sequence[int] | str
NEW = "new"


class Profile(NamedTuple):
    """Influence of each contamination; arrays of shape (G,).

    Attributes:
        state: KL between the posteriors over (particle, regime).
        parameter: KL between the posteriors of the coefficients, expected under the clean
            posterior over regimes.
        joint: state + parameter, the KL between the joint posteriors.
        new_regime: posterior probability of a regime not opened yet, given the contamination.
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
    """KL(regimes given the clean batch || regimes given the contaminated one).

    Args:
        model: a fitted model of the infinite HMM family; it is not changed.
        contamination: what is observed instead. One value (a number, or a vector for d > 1) or a
            grid of G of them, (G,) or (G, d), put at every contaminated position; or one per
            position, (G, P) or (G, P, d). NaN is the observation not seen.
        clean: the observations expected next, (n,) or (n, d), at most the rest of a batch.
        x: their covariates, one row each, if the features need any.
        position: which of them are contaminated: an index, several, or "all".

    Returns:
        A number for one contamination, an array (G,) for a grid.

    Example:
        >>> import regimekit as rk
        >>> model = rk.br_ihmm(noise=0.25, batch=4, particles=20)
        >>> _ = model.run([0.1, -0.2, 0.0, 0.3] * 5)
        >>> near, far = state_pif(model, [1.0, 1e12], clean=[0.0, 0.1, 0.2, -0.1], position=2)
        >>> bool(0 <= near < 1 and 0 <= far < 1)
        True
    """
    return _answer(contamination, model, _state_only(model, contamination, clean, x, position))


def parameter_pif(
    model: Any,
    contamination: Any,
    *,
    clean: Any,
    x: Any = None,
    position: Position = 0,
    regime: int | str | None = None,
) -> Any:
    """KL between the posteriors of the coefficients, for linear-Gaussian emissions.

    Args:
        model: as for `state_pif`.
        contamination: as for `state_pif`.
        clean: as for `state_pif`.
        x: as for `state_pif`.
        position: as for `state_pif`.
        regime: a regime's id, "new" for one not opened yet, or None for the expectation under
            the clean posterior over regimes.

    Example:
        >>> import regimekit as rk
        >>> model = rk.ihmm(noise=0.25, particles=20)
        >>> _ = model.run([0.1, -0.2, 0.0, 0.3] * 5)
        >>> small, large = parameter_pif(model, [1e4, 1e6], clean=[0.0], regime=0)
        >>> round(float(large / small))
        10000
    """
    outlook, paths = _paths(model, contamination, clean, x, position)
    log_share = outlook.log_posterior(paths.clean.score)
    share = np.exp(log_share if regime is None else _within(outlook, log_share, regime))
    return _answer(contamination, model, _expected(share, _row_kl(outlook, paths)))


def joint_pif(
    model: Any, contamination: Any, *, clean: Any, x: Any = None, position: Position = 0
) -> Any:
    """KL between the joint posteriors of regimes and coefficients; arguments as `state_pif`.

    By the chain rule it is the state PIF plus the parameter PIF expected under the clean posterior.

    Example:
        >>> import regimekit as rk
        >>> model = rk.br_ihmm(noise=0.25, batch=2, particles=20)
        >>> _ = model.run([0.1, -0.2, 0.0, 0.3] * 5)
        >>> batch = {"clean": [0.0, 0.1], "position": "all"}
        >>> both = state_pif(model, 9.0, **batch) + parameter_pif(model, 9.0, **batch)
        >>> abs(joint_pif(model, 9.0, **batch) - both) < 1e-9
        True
    """
    result = profile(model, contamination, clean=clean, x=x, position=position)
    return _answer(contamination, model, result.joint)


def profile(
    model: Any, contamination: Any, *, clean: Any, x: Any = None, position: Position = 0
) -> Profile:
    """All influences at once, and what becomes of the regime not opened yet.

    Arguments as `state_pif`; the arrays always have one entry per contamination.

    Example:
        >>> import regimekit as rk
        >>> model = rk.wolf_ihmm(noise=0.25, particles=20)
        >>> _ = model.run([0.1, -0.2, 0.0, 0.3] * 5)
        >>> bool(profile(model, [1e6], clean=[0.0]).new_regime[0] > 0.999)
        True
    """
    outlook, paths = _paths(model, contamination, clean, x, position)
    before = outlook.log_posterior(paths.clean.score)
    after = outlook.log_posterior(np.stack([path.score for path in paths.contaminated]))
    state = discrete_kl(before, after)
    parameter = _expected(np.exp(before), _row_kl(outlook, paths))
    unborn = ~outlook.born
    return Profile(
        state,
        parameter,
        state + parameter,
        np.exp(after)[:, unborn].sum(axis=1),
        float(np.exp(before)[unborn].sum()),
    )


def along(direction: Any, lengths: Any, origin: Any = 0.0) -> Array:
    """Contaminations (G, d) at the given lengths from `origin` along a direction.

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
    """KL(p || q) of normalised log masses over the last axis; where p is 0 it adds nothing."""
    possible = log_p > -np.inf
    gap = np.where(possible, log_p, 0.0) - np.where(possible, log_q, 0.0)
    return np.asarray(np.maximum((np.exp(log_p) * gap).sum(axis=-1), 0.0))


def gaussian_kl(clean: Rows, contaminated: Rows) -> Array:
    """KL(N(mean, Sigma) || N(mean', Sigma')) of each row, from the square roots of Sigma."""
    (mean, root), (moved, moved_root) = clean, contaminated
    mean, moved = mean[:, 0], moved[:, 0]
    size = mean.shape[1]
    both = np.concatenate([root, (moved - mean)[:, :, None]], axis=2)
    solved = np.linalg.solve(moved_root, both)
    log_det = np.linalg.slogdet(moved_root)[1] - np.linalg.slogdet(root)[1]
    total = (solved**2).sum(axis=(1, 2)) - size + 2.0 * log_det
    return np.asarray(np.maximum(0.5 * total, 0.0))


class _Paths(NamedTuple):
    """The model at the end of the clean batch and of each contaminated one."""

    clean: Moment
    contaminated: list[Moment]


def _paths(
    model: Any, contamination: Any, clean: Any, x: Any, position: Position
) -> tuple[Outlook, _Paths]:
    outlook = Outlook(model)
    batch = read_batch(outlook, clean)
    rows = outlook.covariates(x, len(batch))
    at = read_position(position, len(batch))
    batches = _contaminate(batch, contamination, at)
    first = int(at.min())
    prefix = outlook.follow(outlook.start, batch[:first], rows[:first])
    end = outlook.follow(prefix, batch[first:], rows[first:])
    paths = [outlook.follow(prefix, dirty[first:], rows[first:]) for dirty in batches]
    return outlook, _Paths(end, paths)


def _state_only(model: Any, contamination: Any, clean: Any, x: Any, position: Position) -> Array:
    outlook, paths = _paths(model, contamination, clean, x, position)
    before = outlook.log_posterior(paths.clean.score)
    after = outlook.log_posterior(np.stack([path.score for path in paths.contaminated]))
    return discrete_kl(before, after)


def _row_kl(outlook: Outlook, paths: _Paths) -> Array:
    """(G, K) Gaussian KL of every candidate under every contamination."""
    if not isinstance(outlook.emission, LinearGaussian):
        raise RegimekitError(
            "parameter influence needs a linear-Gaussian emission, whose coefficients are "
            f"Gaussian; this model has {type(outlook.emission).__name__}. state_pif works."
        )
    return np.stack([gaussian_kl(paths.clean.rows, path.rows) for path in paths.contaminated])


def _expected(share: Array, divergence: Array) -> Array:
    return np.asarray(np.where(share > 0, share * divergence, 0.0).sum(axis=1))


def _within(outlook: Outlook, log_share: Array, regime: int | str) -> Array:
    """Log posterior of the hypotheses given that the regime is this one, however unlikely."""
    names = {UNBORN: NEW} | outlook.model.reporter.names
    told = [names.get(int(identity)) for identity in outlook.identity]
    ours = np.array([name is not None and name == regime for name in told])
    if not ours.any():
        known = sorted({name for name in told if isinstance(name, int)})
        raise RegimekitError(f'regime={regime!r} is not known; the model has {known} and "new".')
    if log_share[ours].max() == -np.inf:  # no share left at all: its versions count alike
        log_share = np.zeros_like(log_share)
    inside = np.where(ours, log_share, -np.inf)
    inside = inside - inside.max()
    return np.asarray(inside - np.log(np.exp(inside).sum()))


def read_position(position: Position, n: int) -> NDArray[np.int64]:
    """Indices of the contaminated observations among n."""
    if isinstance(position, str):
        if position != "all":
            raise RegimekitError(f'position must be an index, several, or "all", got {position!r}.')
        return np.arange(n)
    at = np.atleast_1d(np.asarray(position))
    if at.dtype.kind != "i" or at.ndim != 1 or not at.size:
        raise RegimekitError(f"position must be whole numbers, got {position!r}.")
    if (at < -n).any() or (at >= n).any():
        raise RegimekitError(
            f"position must lie within clean's {n} observations, got {position!r}."
        )
    return cast(NDArray[np.int64], np.unique(at % n))


def _contaminate(batch: Array, contamination: Any, at: NDArray[np.int64]) -> Array:
    """(G, n, d): the clean batch with each contamination put at the positions `at`."""
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
        raise RegimekitError("contamination is infinite; pass NaN for an observation not seen.")
    batches = np.repeat(batch[None], len(grid), axis=0)
    batches[:, at] = grid
    return batches


def _answer(contamination: Any, model: Any, values: Array) -> Any:
    """A number where one contamination was given, an array for a grid."""
    one = 0 if model.dim == 1 else 1
    return float(values[0]) if np.ndim(contamination) <= one else values
