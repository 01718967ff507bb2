"""How well regimes and changepoints were found.

A changepoint is the first index of a new segment, 0-based. Regime labels need not agree with the
truth's labels: only where they change, and what they hold together, is compared.
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
    """Observations counted by the paper's matching of predicted regimes to true segments.

    Attributes:
        tp: in a found segment, with its majority regime.
        fp: in runs of at least the threshold that are not where they should be.
        fn: in segments that were missed, and in runs shorter than the threshold.
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
    """First index of each new segment; leaving "no regime yet" is not a change.

    Example:
        >>> from regimekit import evaluate
        >>> evaluate.changepoints([0, 0, 1, 1, 0])
        [2, 4]
    """
    labels = _labels("regimes", regimes)
    moved = (labels[1:] != labels[:-1]) & (labels[:-1] != NO_REGIME)
    return [int(t) + 1 for t in np.flatnonzero(moved)]


def switches(regimes: ArrayLike) -> int:
    """How often the regime changes.

    Example:
        >>> from regimekit import evaluate
        >>> evaluate.switches([0, 0, 1, 1, 0])
        2
    """
    return len(changepoints(regimes))


def n_regimes(regimes: ArrayLike) -> int:
    """How many different regimes were visited.

    Example:
        >>> from regimekit import evaluate
        >>> evaluate.n_regimes([0, 0, 1, 1, 0])
        2
    """
    labels = np.unique(_labels("regimes", regimes))
    return int((labels != NO_REGIME).sum())


def detection_delay(regimes: ArrayLike, truth: Iterable[int]) -> float:
    """Mean number of observations from a true changepoint to the next predicted one.

        DD = (1 / |C*|) sum_{t* in C*} min_{t in C, t >= t*} (t - t*)

    The paper leaves open what a true changepoint without any later prediction costs: here it
    costs T - t*, the observations until the end. NaN if there is no true changepoint.

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
    """The paper's algorithm "State matching and labelling", as printed.

    Each true segment is given its most frequent predicted regime (the smallest label if
    several are as frequent). If that is also the regime of the segment before, the change was
    missed: its observations count as fn, and its runs are scanned once more; otherwise they
    count as tp, and the runs of the other regimes are scanned. A scanned run counts as fp if
    it has at least `run_threshold` observations and as fn if not. So an observation of a
    missed segment can count twice: that is what the listing says.

    The listing never updates the regime of the segment before; it is updated here at the end
    of each segment that is not empty, without which no change could be missed.

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
    before: int | None = None  # not -1: that is a label here
    for a, b in pairwise(bounds):
        segment = labels[a:b]
        if not segment.size:
            continue
        majority, size = _majority(segment)
        missed = majority == before
        tp, fn = (tp, fn + size) if missed else (tp + size, fn)
        for label, length in _runs(segment):
            if (label == majority) != missed:
                continue
            fp, fn = (fp + length, fn) if length >= threshold else (fp, fn + length)
        before = majority
    return Matching(tp, fp, fn)


def adjusted_rand(a: ArrayLike, b: ArrayLike) -> float:
    """Agreement of two labellings, 1 if they are the same up to names, about 0 by chance.

    Example:
        >>> from regimekit import evaluate
        >>> evaluate.adjusted_rand([0, 0, 1, 1], [7, 7, 3, 3])
        1.0
    """
    first, second = _labels("a", a), _labels("b", b)
    if first.shape != second.shape:
        raise RegimekitError(f"a has {first.size} labels but b has {second.size}.")
    table = _contingency(first, second)
    together = _pairs(table).sum()
    in_first, in_second = _pairs(table.sum(axis=1)).sum(), _pairs(table.sum(axis=0)).sum()
    everything = _pairs(np.array(float(first.size)))
    chance = in_first * in_second / everything if everything else 0.0
    ceiling = 0.5 * (in_first + in_second)
    if ceiling == chance:  # both hold everything together, or both nothing
        return 1.0
    return float((together - chance) / (ceiling - chance))


def covering(truth: Annotations, predicted: Iterable[int], n: int) -> float:
    """How well the predicted segments cover the true ones, from 0 to 1.

    Each true segment is worth its length times the largest Jaccard index with a predicted
    segment; with several annotators the mean over them (van den Burg and Williams 2020, after
    Arbelaez et al. 2010).

    Args:
        truth: changepoints, or one list of them per annotator (list of lists, or mapping).
        predicted: changepoints found.
        n: length of the series.

    Example:
        >>> from regimekit import evaluate
        >>> round(evaluate.covering([5], [4], n=10), 4)
        0.8167
    """
    count = whole("n", n)
    found = _bounds("predicted", predicted, count)
    return float(np.mean([_cover(_bounds("truth", one, count), found) for one in _people(truth)]))


def f1(truth: Annotations, predicted: Iterable[int], margin: int = 5) -> float:
    """F1 of changepoints found within `margin` observations, against one or more annotators.

    As the Turing Change Point benchmark (van den Burg and Williams 2020) has it: index 0 counts
    as a changepoint of everyone, a prediction can be used once, precision is against all
    annotators together, recall is the mean over the annotators.

    Example:
        >>> from regimekit import evaluate
        >>> round(evaluate.f1({"ann": [10, 20], "bob": [11]}, [12, 50], margin=5), 4)
        0.7407
    """
    reach = whole("margin", margin, 0)
    found = {0, *_indices("predicted", predicted)}
    people = [{0, *_indices("truth", one)} for one in _people(truth)]
    precision = _hits(set().union(*people), found, reach) / len(found)
    recall = float(np.mean([_hits(one, found, reach) / len(one) for one in people]))
    return 2 * precision * recall / (precision + recall)  # never 0 / 0: everyone has index 0


def _majority(segment: Labels) -> tuple[int, int]:
    """The most frequent label and its count; the smallest label among equals."""
    values, counts = np.unique(segment, return_counts=True)
    best = int(np.argmax(counts))
    return int(values[best]), int(counts[best])


def _runs(segment: Labels) -> list[tuple[int, int]]:
    """Label and length of each maximal run."""
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
    """True changepoints with a prediction nearby, each prediction used at most once."""
    left = sorted(found)
    hits = 0
    for t in sorted(true):
        near = min(left, key=lambda x: (abs(x - t), x), default=None)
        if near is not None and abs(near - t) <= margin:
            left.remove(near)
            hits += 1
    return hits


def _people(truth: Annotations) -> list[list[int]]:
    """One list of changepoints per annotator."""
    if isinstance(truth, Mapping):
        people = [list(one) for one in truth.values()]
    else:
        items: list[Any] = list(truth)
        nested = bool(items) and all(np.ndim(item) == 1 for item in items)
        people = [list(item) for item in items] if nested else [items]
    if not people:
        raise RegimekitError("truth names no annotator.")
    return people


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
        raise RegimekitError(f"{name} has the changepoint {where[-1]} beyond the end {n}.")
    return where


def _bounds(name: str, times: Sequence[int] | Iterable[int], n: int) -> NDArray[np.int64]:
    """0, the changepoints strictly inside, n."""
    inside = _sorted(name, times, n)
    return np.concatenate([[0], inside[(inside > 0) & (inside < n)], [n]])
