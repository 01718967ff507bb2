"""Segmentation metrics: changepoints and regimes against the truth or annotators.

A changepoint is the first index of a new segment, 0-based. Regime labels need not equal the true
labels: only the partition of the observations is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regimekit.core.exceptions import RegimekitError, whole
from regimekit.results import NO_REGIME

Labels = NDArray[np.int64]
Annotations = Iterable[int] | Mapping[Any, Iterable[int]] | Iterable[Iterable[int]]


class Matching(NamedTuple):
    """Counts of observations from the paper's matching of predicted regimes to true segments.

    Attributes:
        tp: observations of a detected segment with its majority regime.
        fp: observations in wrong runs of at least the threshold length.
        fn: observations of missed segments, and in runs shorter than the threshold.
    """

    tp: int
    fp: int
    fn: int

    @property
    def tpr(self) -> float:
        """True positive rate tp / (tp + fn); 0 if both are."""
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else 0.0

    @property
    def ppv(self) -> float:
        """Positive predictive value tp / (tp + fp); 0 if both are."""
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else 0.0


def changepoints(regimes: ArrayLike) -> list[int]:
    """Return the first index of each new segment.

    Args:
        regimes: (T,) regime labels; a change from "no regime yet" (-1) is not counted.

    Example:
        >>> from regimekit import evaluate
        >>> evaluate.changepoints([0, 0, 1, 1, 0])
        [2, 4]
    """
    labels = _labels("regimes", regimes)
    moved = (labels[1:] != labels[:-1]) & (labels[:-1] != NO_REGIME)
    return [int(t) + 1 for t in np.flatnonzero(moved)]


def switches(regimes: ArrayLike) -> int:
    """Return the number of changes of regime.

    Args:
        regimes: (T,) regime labels.

    Example:
        >>> from regimekit import evaluate
        >>> evaluate.switches([0, 0, 1, 1, 0])
        2
    """
    return len(changepoints(regimes))


def n_regimes(regimes: ArrayLike) -> int:
    """Return the number of distinct regimes visited.

    Args:
        regimes: (T,) regime labels; -1 (no regime yet) is not counted.

    Example:
        >>> from regimekit import evaluate
        >>> evaluate.n_regimes([0, 0, 1, 1, 0])
        2
    """
    labels = np.unique(_labels("regimes", regimes))
    return int((labels != NO_REGIME).sum())


def detection_delay(regimes: ArrayLike, truth: Iterable[int]) -> float:
    """Return the mean number of observations from a true changepoint to the next predicted one.

        DD = (1 / |C*|) sum_{t* in C*} min_{t in C, t >= t*} (t - t*)

    The paper does not define the delay of a true changepoint without any later prediction: here it
    is T - t*, the number of observations until the end.

    Args:
        regimes: (T,) predicted regime labels.
        truth: true changepoints.

    Returns:
        Mean delay in observations; NaN if there is no true changepoint.

    Example:
        >>> from regimekit import evaluate
        >>> evaluate.detection_delay([0, 0, 0, 1, 1, 1, 1, 1], truth=[2, 6])
        1.5
    """
    labels = _labels("regimes", regimes)
    true = _sorted("truth", truth, len(labels))
    found = np.array([*changepoints(labels), len(labels)])
    if not true.size:
        return float("nan")
    return float((found[np.searchsorted(found, true)] - true).mean())


def match_regimes(regimes: ArrayLike, truth: Iterable[int], run_threshold: int) -> Matching:
    """Return counts from matching predicted regimes to true segments, as in the paper.

    The algorithm is "State matching and labelling". Each true segment is assigned its most frequent
    predicted regime (the smallest label on a tie). If the previous segment has the same regime, the
    change was missed: the observations with that regime count as fn, and their runs are scanned as
    well. Otherwise they count as tp, and the runs of the other regimes are scanned. A scanned run
    counts as fp if it has at least `run_threshold` observations, otherwise as fn. An observation of
    a missed segment can count twice, as in the printed listing.

    The listing never updates the regime of the previous segment; it is updated here after each
    segment that is not empty, because otherwise no change could be missed.

    Args:
        regimes: (T,) predicted regime labels.
        truth: true changepoints.
        run_threshold: minimum length of a run that counts as fp, in observations.

    Example:
        >>> from regimekit import evaluate
        >>> match = evaluate.match_regimes([0, 0, 0, 1, 1, 2], truth=[3], run_threshold=2)
        >>> match.tp, match.fp, match.fn, round(match.tpr, 3)
        (5, 0, 1, 0.833)
    """
    labels = _labels("regimes", regimes)
    threshold = whole("run_threshold", run_threshold)
    bounds = [0, *_sorted("truth", truth, len(labels)).tolist(), len(labels)]
    tp = fp = fn = 0
    previous: int | None = None  # None, because -1 is a valid label here
    for a, b in pairwise(bounds):
        segment = labels[a:b]
        if not segment.size:
            continue
        majority, size = _majority(segment)
        missed = majority == previous
        tp, fn = (tp, fn + size) if missed else (tp + size, fn)
        for label, length in _runs(segment):
            if (label == majority) != missed:
                continue
            fp, fn = (fp + length, fn) if length >= threshold else (fp, fn + length)
        previous = majority
    return Matching(tp, fp, fn)


def adjusted_rand(a: ArrayLike, b: ArrayLike) -> float:
    """Return the adjusted Rand index of two labellings: 1 if equal up to names, about 0 by chance.

    Args:
        a: (T,) labels.
        b: (T,) labels.

    Example:
        >>> from regimekit import evaluate
        >>> evaluate.adjusted_rand([0, 0, 1, 1], [7, 7, 3, 3])
        1.0
    """
    first, second = _labels("a", a), _labels("b", b)
    if first.shape != second.shape:
        raise RegimekitError(
            f"a and b must have the same length, got {first.size} and {second.size}."
        )
    table = _contingency(first, second)
    together = _pairs(table).sum()
    in_first, in_second = _pairs(table.sum(axis=1)).sum(), _pairs(table.sum(axis=0)).sum()
    everything = _pairs(np.array(float(first.size)))
    chance = in_first * in_second / everything if everything else 0.0
    ceiling = 0.5 * (in_first + in_second)
    if ceiling == chance:  # one cluster in both, or only singletons in both
        return 1.0
    return float((together - chance) / (ceiling - chance))


def covering(truth: Annotations, predicted: Iterable[int], n: int) -> float:
    """Return the covering of the true segments by the predicted ones, from 0 to 1.

    Mean over true segments, weighted by length, of the largest Jaccard index with a predicted
    segment; with several annotators the mean over annotators (van den Burg and Williams 2020, after
    Arbelaez et al. 2010).

    Args:
        truth: changepoints, or one list of them per annotator (list of lists, or mapping).
        predicted: predicted changepoints.
        n: length of the series in observations.

    Example:
        >>> from regimekit import evaluate
        >>> round(evaluate.covering([5], [4], n=10), 4)
        0.8167
    """
    count = whole("n", n)
    found = _bounds("predicted", predicted, count)
    return float(
        np.mean([_cover(_bounds("truth", one, count), found) for one in _annotators(truth)])
    )


def f1(truth: Annotations, predicted: Iterable[int], margin: int = 5) -> float:
    """Return the F1 score of changepoints within `margin` observations.

    Definition of the Turing Change Point benchmark (van den Burg and Williams 2020): index 0 is a
    changepoint of every annotator, each prediction matches at most once, precision is against the
    union of the annotators, recall is the mean over annotators.

    Args:
        truth: changepoints, or one list of them per annotator (list of lists, or mapping).
        predicted: predicted changepoints.
        margin: maximum distance of a match in observations.

    Example:
        >>> from regimekit import evaluate
        >>> round(evaluate.f1({"ann": [10, 20], "bob": [11]}, [12, 50], margin=5), 4)
        0.7407
    """
    reach = whole("margin", margin, 0)
    found = {0, *_indices("predicted", predicted)}
    annotators = [{0, *_indices("truth", one)} for one in _annotators(truth)]
    precision = _hits(set().union(*annotators), found, reach) / len(found)
    recall = float(np.mean([_hits(one, found, reach) / len(one) for one in annotators]))
    # The denominator is positive: index 0 is a changepoint of every annotator.
    return 2 * precision * recall / (precision + recall)


def _majority(segment: Labels) -> tuple[int, int]:
    """Most frequent label and its count; the smallest label on a tie."""
    values, counts = np.unique(segment, return_counts=True)
    best = int(np.argmax(counts))
    return int(values[best]), int(counts[best])


def _runs(segment: Labels) -> list[tuple[int, int]]:
    """Label and length of each run of equal labels."""
    edges = np.flatnonzero(np.diff(segment)) + 1
    starts = np.concatenate([[0], edges])
    lengths = np.diff(np.concatenate([starts, [segment.size]]))
    return [(int(segment[s]), int(r)) for s, r in zip(starts, lengths, strict=True)]


def _contingency(first: Labels, second: Labels) -> NDArray[np.float64]:
    rows, row = np.unique(first, return_inverse=True)
    columns, column = np.unique(second, return_inverse=True)
    counts = np.bincount(row * columns.size + column, minlength=rows.size * columns.size)
    return counts.reshape(rows.size, columns.size).astype(float)


def _pairs(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(counts * (counts - 1) / 2)


def _cover(true: NDArray[np.int64], found: NDArray[np.int64]) -> float:
    """Covering of the segments between `true` bounds by those between `found` bounds."""
    start, stop = true[:-1, None], true[1:, None]
    common = np.minimum(stop, found[1:]) - np.maximum(start, found[:-1])
    common = np.maximum(common, 0)
    union = (stop - start) + (found[1:] - found[:-1]) - common
    length = (stop - start)[:, 0]
    return float((length * (common / union).max(axis=1)).sum() / length.sum())


def _hits(true: set[int], found: set[int], margin: int) -> int:
    """Number of true changepoints with a prediction within `margin`, each used at most once."""
    left = sorted(found)
    hits = 0
    for t in sorted(true):
        near = min(left, key=lambda x: (abs(x - t), x), default=None)
        if near is not None and abs(near - t) <= margin:
            left.remove(near)
            hits += 1
    return hits


def _annotators(truth: Annotations) -> list[list[int]]:
    """One list of changepoints per annotator."""
    if isinstance(truth, Mapping):
        annotators = [list(one) for one in truth.values()]
    else:
        items: list[Any] = list(truth)
        nested = bool(items) and all(np.ndim(item) == 1 for item in items)
        annotators = [list(item) for item in items] if nested else [items]
    if not annotators:
        raise RegimekitError("truth must contain at least one annotator, got none.")
    return annotators


def _labels(name: str, labels: ArrayLike) -> Labels:
    values = np.asarray(labels)
    if values.ndim != 1 or (values.size and values.dtype.kind not in "iub"):
        raise RegimekitError(
            f"{name} must be a vector of whole numbers, got {values.dtype} of shape {values.shape}."
        )
    return values.astype(np.int64)


def _indices(name: str, times: Iterable[int]) -> list[int]:
    return [whole(name, t, 0) for t in times]


def _sorted(name: str, times: Iterable[int], n: int) -> NDArray[np.int64]:
    where = np.array(sorted(set(_indices(name, times))), dtype=np.int64)
    if where.size and where[-1] > n:
        raise RegimekitError(f"{name} must not exceed the length {n}, got changepoint {where[-1]}.")
    return where


def _bounds(name: str, times: Sequence[int] | Iterable[int], n: int) -> NDArray[np.int64]:
    """Segment bounds: 0, the changepoints strictly inside, n."""
    inside = _sorted(name, times, n)
    return np.concatenate([[0], inside[(inside > 0) & (inside < n)], [n]])
