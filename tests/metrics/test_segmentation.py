"""Segmentation scores by hand, and against literal transcriptions of their definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from regimekit import metrics as evaluate
from regimekit.core.exceptions import RegimekitError
from regimekit.results import NO_REGIME


def match_as_printed(states: list[int], truth: list[int], run_threshold: int) -> tuple[int, ...]:
    """The paper's listing line by line, with the previous majority updated per segment."""
    tp = fp = fn = 0
    bounds = [0, *truth, len(states)]
    previous = -1
    for i in range(len(bounds) - 1):
        a, b = bounds[i], bounds[i + 1]
        segment = states[a:b]
        if len(segment) == 0:
            continue
        majority = max(sorted(set(segment)), key=segment.count)
        failed_detection = previous == majority
        if failed_detection:
            fn += segment.count(majority)
        else:
            tp += segment.count(majority)
        j = 0
        while j < len(segment):
            if (segment[j] == majority and not failed_detection) or (
                segment[j] != majority and failed_detection
            ):
                j += 1
                continue
            k = j
            while k < len(segment) and segment[k] == segment[j]:
                k += 1
            r = k - j
            if r >= run_threshold:
                fp += r
            else:
                fn += r
            j = k
        previous = majority
    return tp, fp, fn


class TestChangepoints:
    def test_first_index_of_each_segment(self) -> None:
        assert evaluate.changepoints([3, 3, 5, 5, 3]) == [2, 4]
        assert evaluate.changepoints([]) == []
        assert evaluate.changepoints([1]) == []

    def test_before_the_first_regime_nothing_changes(self) -> None:
        regimes = [NO_REGIME, NO_REGIME, 0, 0, 1]
        assert evaluate.changepoints(regimes) == [4]
        assert evaluate.n_regimes(regimes) == 2
        assert evaluate.switches(regimes) == 1

    def test_labels_must_be_whole_numbers(self) -> None:
        with pytest.raises(RegimekitError, match="regimes"):
            evaluate.changepoints([0.5, 1.0])


class TestDelay:
    def test_by_hand(self) -> None:
        regimes = [0] * 10 + [1] * 10 + [0] * 10
        assert evaluate.detection_delay(regimes, [10, 20]) == 0
        assert evaluate.detection_delay(regimes, [7, 20]) == 1.5
        # a change just before the truth does not count: the next one is at 20
        assert evaluate.detection_delay(regimes, [11]) == 9

    def test_a_change_never_found_costs_the_rest(self) -> None:
        assert evaluate.detection_delay([0] * 30, [10]) == 20
        assert evaluate.detection_delay([0] * 10 + [1] * 20, [10, 25]) == 2.5

    def test_no_true_change(self) -> None:
        assert math.isnan(evaluate.detection_delay([0, 1], []))

    def test_changepoint_beyond_the_end(self) -> None:
        with pytest.raises(RegimekitError, match="truth"):
            evaluate.detection_delay([0, 1], [5])


class TestMatching:
    def test_perfect(self) -> None:
        match = evaluate.match_regimes([4] * 5 + [9] * 5 + [4] * 5, [5, 10], run_threshold=3)
        assert match == (15, 0, 0)
        assert (match.tpr, match.ppv) == (1.0, 1.0)

    def test_long_and_short_runs_of_other_regimes(self) -> None:
        # one segment, majority 0 (5 of 9): a run of 3 is false, a run of 1 is merely missed
        match = evaluate.match_regimes([0, 0, 1, 1, 1, 0, 0, 0, 2], [], run_threshold=3)
        assert match == (5, 3, 1)
        assert match.tpr == 5 / 6
        assert match.ppv == 5 / 8

    def test_a_missed_change_counts_its_runs_twice(self) -> None:
        # segments 0 0 0 0 | 0 0 0 1 0: the second keeps regime 0. Its four observations are
        # missed; then its runs of 0 are scanned: 3 reaches the threshold, 1 does not; the 1
        # itself is passed over.
        match = evaluate.match_regimes([0] * 4 + [0, 0, 0, 1, 0], [4], run_threshold=3)
        assert match == (4, 3, 4 + 1)

    def test_the_segment_before_is_the_last_one(self) -> None:
        # 0 | 1 | 0: regime 0 returns after 1, which is no miss
        assert evaluate.match_regimes([0, 0, 1, 1, 0, 0], [2, 4], 2) == (6, 0, 0)

    def test_equal_counts_take_the_smallest_label(self) -> None:
        # 1 1 0 0: majority 0, so the run of ones is the other regime; then 0 again is a miss
        assert evaluate.match_regimes([1, 1, 0, 0], [], 2) == (2, 2, 0)
        assert evaluate.match_regimes([1, 1, 0, 0, 0], [4], 2) == (2, 2, 2)

    def test_empty_segments_are_passed_over(self) -> None:
        assert evaluate.match_regimes([0, 0, 1], [0, 2, 3], 1) == (3, 0, 0)
        nothing = evaluate.match_regimes([], [], 1)
        assert (nothing, nothing.tpr, nothing.ppv) == ((0, 0, 0), 0.0, 0.0)

    def test_no_regime_yet_is_a_label_like_any_other(self) -> None:
        assert evaluate.match_regimes([NO_REGIME] * 3, [], 1) == (3, 0, 0)

    def test_against_the_listing(self) -> None:
        rng = np.random.default_rng(0)
        for _ in range(300):
            n = int(rng.integers(1, 40))
            states = np.repeat(rng.integers(0, 3, n), rng.integers(1, 4, n))[:n].tolist()
            truth = sorted({int(t) for t in rng.integers(1, n + 1, 3)})
            threshold = int(rng.integers(1, 5))
            expected = match_as_printed(states, truth, threshold)
            assert evaluate.match_regimes(states, truth, threshold) == expected

    def test_threshold_must_be_positive(self) -> None:
        with pytest.raises(RegimekitError, match="run_threshold"):
            evaluate.match_regimes([0, 1], [1], 0)


class TestAdjustedRand:
    def test_names_do_not_matter(self) -> None:
        assert evaluate.adjusted_rand([0, 0, 1, 2], [5, 5, 9, 1]) == 1.0
        assert evaluate.adjusted_rand([0, 0, 0], [1, 1, 1]) == 1.0
        assert evaluate.adjusted_rand([0, 1, 2], [2, 1, 0]) == 1.0
        assert evaluate.adjusted_rand([0], [3]) == 1.0

    def test_by_counting_pairs(self) -> None:
        rng = np.random.default_rng(1)
        a, b = rng.integers(0, 3, 30), rng.integers(0, 4, 30)
        pairs = list(itertools.combinations(range(30), 2))
        both = sum(a[i] == a[j] and b[i] == b[j] for i, j in pairs)
        in_a, in_b = (sum(c[i] == c[j] for i, j in pairs) for c in (a, b))
        chance = in_a * in_b / len(pairs)
        expected = (both - chance) / ((in_a + in_b) / 2 - chance)
        assert evaluate.adjusted_rand(a, b) == pytest.approx(expected, rel=1e-12)

    def test_chance_is_about_zero(self) -> None:
        # the standard deviation at n = 5000 is below 0.002; 0.02 is ten of them
        rng = np.random.default_rng(2)
        labels = rng.integers(0, 4, (2, 5000))
        assert abs(evaluate.adjusted_rand(*labels)) < 0.02

    def test_lengths_must_agree(self) -> None:
        with pytest.raises(RegimekitError, match="same length"):
            evaluate.adjusted_rand([0, 1], [0])


def covering_by_sets(truth: list[int], predicted: list[int], n: int) -> float:
    def segments(cuts: list[int]) -> list[set[int]]:
        ends = [0, *cuts, n]
        return [set(range(a, b)) for a, b in itertools.pairwise(ends) if b > a]

    found = segments(predicted)
    best = [len(s) * max(len(s & f) / len(s | f) for f in found) for s in segments(truth)]
    return sum(best) / n


class TestCovering:
    def test_by_hand(self) -> None:
        # segments [0, 4) and [4, 10) against one of ten: 4 * 4/10 + 6 * 6/10 over 10
        assert evaluate.covering([4], [], 10) == pytest.approx(0.52)
        assert evaluate.covering([4, 8], [4, 8], 10) == 1.0
        # nobody marked anything: one segment, halved by the prediction
        assert evaluate.covering([], [5], 10) == 0.5

    def test_against_sets(self) -> None:
        rng = np.random.default_rng(3)
        for _ in range(100):
            n = int(rng.integers(2, 40))
            truth, found = (sorted({int(t) for t in rng.integers(0, n, 4)}) for _ in range(2))
            expected = covering_by_sets(truth, found, n)
            assert evaluate.covering(truth, found, n) == pytest.approx(expected)

    def test_annotators_are_averaged(self) -> None:
        people = {"a": [4], "b": []}
        expected = (covering_by_sets([4], [5], 10) + covering_by_sets([], [5], 10)) / 2
        assert evaluate.covering(people, [5], 10) == pytest.approx(expected)
        assert evaluate.covering([[4], []], [5], 10) == pytest.approx(expected)

    def test_needs_an_annotator(self) -> None:
        with pytest.raises(RegimekitError, match="annotator"):
            evaluate.covering({}, [5], 10)


class TestF1:
    def test_by_hand(self) -> None:
        # {0, 10, 20} against {0, 12, 50}: two of three both ways
        assert evaluate.f1([10, 20], [12, 50]) == pytest.approx(2 / 3)
        assert evaluate.f1([10], [16]) == pytest.approx(1 / 2)
        assert evaluate.f1([10], [15]) == 1.0
        assert evaluate.f1([10], [16], margin=6) == 1.0

    def test_a_prediction_is_used_once(self) -> None:
        # {0, 10, 12} against {0, 11}: precision 2 / 2, recall 2 / 3
        assert evaluate.f1([10, 12], [11]) == pytest.approx(0.8)
        # {0, 10} against {0, 9, 11}: precision 2 / 3, recall 1
        assert evaluate.f1([10], [9, 11]) == pytest.approx(0.8)

    def test_annotators(self) -> None:
        # together {0, 10, 50} against {0, 10}: precision 1; recall (1 + 1 + 1/2) / 3
        people = {"a": [], "b": [10], "c": [50]}
        precision, recall = 1.0, (1 + 1 + 0.5) / 3
        expected = 2 * precision * recall / (precision + recall)
        assert evaluate.f1(people, [10]) == pytest.approx(expected)

    def test_nothing_marked_and_nothing_found(self) -> None:
        assert evaluate.f1([], []) == 1.0
        assert evaluate.f1([], [30]) == pytest.approx(2 / 3)

    def test_indices_must_be_whole(self) -> None:
        with pytest.raises(RegimekitError, match="predicted"):
            evaluate.f1([10], [-3])
        with pytest.raises(RegimekitError, match="margin"):
            evaluate.f1([10], [3], margin=-1)
