"""The public benchmarks: NAB's scoring by hand, resuming, and failures that are shown."""

from __future__ import annotations

import itertools
import shutil

import numpy as np
import pytest

from benchmarks.public import __main__ as command
from benchmarks.public import corpus, forecasters, nab, origin, report, results, series, tasks
from paper.state import SOURCE


def test_windows_share_a_tenth_of_the_series_and_join_where_they_meet():
    assert nab.windows([(500, 500)], 1000) == [(450, 550)]
    assert nab.windows([(300, 300), (700, 700)], 1000) == [(275, 325), (675, 725)]
    assert nab.windows([(300, 300), (310, 310)], 1000) == [(275, 335)]


def test_nab_rewards_early_alarms_and_ignores_later_ones_in_a_window():
    spans = [(400, 499)]
    first = nab.raw_score([400], spans, 1000)
    assert first == pytest.approx(1.0)
    assert nab.raw_score([400, 450], spans, 1000) == first
    late = nab.raw_score([499], spans, 1000)
    assert 0 < late < 0.1 < first
    assert nab.raw_score([], spans, 1000) == -1


def test_nab_charges_false_alarms_and_forgives_the_learning_rows():
    spans = [(400, 499)]
    assert nab.raw_score([200, 400], spans, 1000) == pytest.approx(1 - 0.11)
    assert nab.raw_score([100, 400], spans, 1000) == pytest.approx(1.0)
    near, far = nab.raw_score([400, 501], spans, 1000), nab.raw_score([400, 990], spans, 1000)
    assert 1 > near > far == pytest.approx(1 - 0.11)


def test_nab_is_100_for_a_perfect_detector_and_0_for_silence():
    assert nab.normalised(2.0, 2) == 100
    assert nab.normalised(-2.0, 2) == 0


def test_no_detector_is_charged_for_what_a_higher_threshold_would_spare_it():
    scores = np.ones(1000)  # fires always, whatever the threshold below 1
    raw = nab.raw_scores(scores, [(500, 500)])
    assert max(raw) == raw[-1] == -1
    assert raw[0] < -50


def test_auto_ets_is_fitted_to_more_than_its_first_rows():
    fitted = []

    class Spy:
        def fit(self, y):
            fitted.append(len(y))

        def forward(self, y, h, level):
            return {"mean": [0.0], "lo-90": [-1.0], "hi-90": [1.0]}

    peer = forecasters.Ets.__new__(forecasters.Ets)
    forecasters.Guest.__init__(peer, series.Series("s", np.zeros(1)))
    peer.model, peer.past, peer.fitted_at = Spy(), [], 0
    for _ in range(300):
        peer.predict()
        peer.learn(0.0)
    assert fitted[0] == 10
    assert max(np.diff(fitted)) <= forecasters.REFIT
    assert all(later <= 1.1 * earlier + 1 for earlier, later in itertools.pairwise(fitted))


def test_a_peer_that_fails_uses_and_counts_the_last_value():
    class Broken:
        def learn_one(self, y):
            """Learns nothing."""

        def forecast(self, horizon):
            raise RuntimeError("no")

    one = series.Series("s", np.zeros(1))
    peer = forecasters.OfRiver(one, Broken())
    lender = forecasters.PEERS["last_value"](one)
    for y in (4.0, 4.5, 3.0):
        assert peer.predict().interval(0.9) == lender.predict().interval(0.9)
        assert not peer.own
        peer.learn(y)
        lender.learn(y)
    assert peer.predict().mean == 3.0


def test_a_guest_works_in_the_units_of_the_series_and_is_scored_in_scaled_ones():
    class Latest:
        seen: list[float] = []  # noqa: RUF012

        def learn_one(self, y):
            self.seen.append(y)

        def forecast(self, horizon):
            return self.seen[-1:]

    one = series.scaled(series.Series("s", 1000.0 + 10.0 * np.arange(30.0)))
    peer = forecasters.OfRiver(one, Latest())
    for y in one.y[:5]:
        peer.predict()
        peer.learn(float(y))
    np.testing.assert_allclose(Latest.seen, 1000.0 + 10.0 * np.arange(5.0))
    assert peer.predict().mean == pytest.approx(one.y[4])
    assert peer.own


@pytest.fixture
def small(monkeypatch):
    """One generated series, peers of two tasks, one of which fails; the peers that were run."""
    y = np.repeat([0.0, 3.0], 60) + np.random.default_rng(0).standard_normal(120)
    made = {"two_levels": lambda: series.Series("two_levels", y, annotations={"truth": [60]})}
    run = []

    def fails(y):
        raise RuntimeError("this peer fails")

    def noted(measure):
        def measured(one, peer):
            run.append(peer)
            return measure(one, peer)

        return measured

    peers = {"broken": fails, "no_change": lambda y: [], "right": lambda y: [60]}
    monkeypatch.setattr(tasks.detectors, "CHANGES", peers)
    ours = {name: forecasters.PEERS[name] for name in ("last_value", "least_squares")}
    both = {
        "changes": tasks.Task(made, peers, noted(tasks.find_changes)),
        "forecasts": tasks.Task(made, ours, noted(tasks.forecast)),
    }
    monkeypatch.setattr(command, "TASKS", both)
    return run


ALL = ["broken", "no_change", "right", "last_value", "least_squares"]


def _main(folder, *further):
    command.main(["--out", str(folder), *further])


def _changed(folder, task, peer, **values):
    before = results.read(folder, task)["two_levels", peer]
    results.keep(folder, before | values)


def test_a_stored_result_is_found_again_and_failures_are_shown(small, tmp_path):
    _main(tmp_path, "--page", str(tmp_path / "page.md"))
    assert small == ALL
    text = (tmp_path / "page.md").read_text()
    assert "| right | 1 of 1 | 1.000 | 1.000 | - | - |" in text  # none that all managed
    assert "| broken | 0 of 1 | - | - | - | - |" in text
    assert "| two_levels | failed | 0.50, 0.67, 0 | 1.00, 1.00, 1 |" in text
    assert "RuntimeError: this peer fails" in text
    assert f"numpy {np.__version__}" in text
    _changed(tmp_path, "changes", "right", covering=0.25)
    _main(tmp_path, "--page", str(tmp_path / "page.md"))
    assert small == ALL  # none was run again, not even the one that fails
    assert "| right | 1 of 1 | 0.250 | 1.000 |" in (tmp_path / "page.md").read_text()


def test_an_interrupted_run_is_taken_up_where_it_was(small, tmp_path, monkeypatch):
    def interrupted(one, peer):
        raise KeyboardInterrupt

    whole = command.TASKS["forecasts"]
    monkeypatch.setitem(command.TASKS, "forecasts", whole._replace(measure=interrupted))
    with pytest.raises(KeyboardInterrupt):
        _main(tmp_path)
    assert small == ALL[:3]
    monkeypatch.setitem(command.TASKS, "forecasts", whole)
    _main(tmp_path)
    assert small == ALL
    assert sorted(path.name for path in tmp_path.iterdir()) == ["changes.jsonl", "forecasts.jsonl"]


def test_a_result_that_cannot_be_written_leaves_the_file_as_it_was(tmp_path):
    one = {"task": "changes", "series": "s", "peer": "b", "covering": 0.5}
    results.keep(tmp_path, one)
    with pytest.raises(TypeError):
        results.keep(tmp_path, one | {"peer": "a", "covering": object()})
    results.keep(tmp_path, one | {"peer": "a"})
    assert list(results.read(tmp_path, "changes")) == [("s", "a"), ("s", "b")]
    assert results.read(tmp_path, "changes")["s", "b"] == one


@pytest.fixture
def edited(tmp_path):
    """A copy of the library in which a module can be edited."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE / "regimekit", tmp_path / "source" / "regimekit", ignore=ignored)

    def edit(module, text):
        with (tmp_path / "source" / "regimekit" / module).open("a") as file:
            file.write(text)
        return tmp_path / "source"

    return edit


def test_a_changed_source_makes_our_own_peers_stale_and_no_others(
    small, edited, tmp_path, monkeypatch
):
    _main(tmp_path / "out")
    small.clear()
    root, source = edited("baselines/naive.py", "\nFURTHER = 1\n"), origin.source
    monkeypatch.setattr(origin, "source", lambda task, peer: source(task, peer, root=root))
    page = tmp_path / "page.md"
    with pytest.raises(SystemExit, match="2 results are missing or out of date"):
        _main(tmp_path / "out", "--peers", "right", "--page", str(page))
    assert not page.exists()
    _main(tmp_path / "out", "--page", str(page))
    assert small == ["last_value", "least_squares"]
    assert page.exists()


def test_what_cannot_change_numbers_leaves_all_results_as_they_are(edited):
    edited("baselines/naive.py", "\n# A comment.\n")
    edited("core/exceptions.py", "\nFURTHER = 1\n")
    root = edited("cli/commands.py", "\nFURTHER = 1\n")
    for task, peer in (("changes", "regimekit"), ("forecasts", "last_value")):
        assert origin.source(task, peer, root=root) == origin.source(task, peer)


def test_regimekit_goes_by_what_auto_is_made_of(edited):
    root = edited("ensemble/aggregation.py", "\nFURTHER = 1\n")
    for task in tasks.TASKS:
        assert origin.source(task, "regimekit", root=root) != origin.source(task, "regimekit")


def test_other_data_or_versions_make_a_result_stale_and_what_is_not_here_does_not():
    one = series.Series("s", np.zeros(3))
    now = origin.origin("forecasts", "river_snarimax", one)
    assert not origin.stale(now, now)
    newer = now | {"versions": now["versions"] | {"river": "later"}}
    assert origin.stale(now, newer)
    assert origin.renewable(newer)
    without = now | {"versions": now["versions"] | {"river": origin.ABSENT}}
    assert not origin.stale(now, without)
    assert not origin.renewable(without)
    assert origin.stale(without, newer)
    other = origin.origin("forecasts", "river_snarimax", series.Series("s", np.ones(3)))
    assert origin.stale(now, other)
    nowhere = origin.origin("forecasts", "river_snarimax", corpus.Absent("no file"))
    assert not origin.stale(now, nowhere)
    assert origin.stale(nowhere, now)


def test_the_version_of_regimekit_alone_makes_nothing_stale():
    now = origin.origin("forecasts", "regimekit", series.Series("s", np.zeros(3)))
    assert not origin.stale(now | {"versions": now["versions"] | {"regimekit": "0.0.0"}}, now)


def test_a_peer_is_ours_or_trivial_or_named_after_its_library():
    trivial = {"no_change", "never", "always"}
    for task in tasks.TASKS.values():
        for peer in set(task.peers) - origin.OURS - trivial:
            assert set(origin.versions(peer)) & set(origin.LIBRARIES), peer


def test_the_page_shows_the_stored_results():
    found = []
    for name, task in tasks.TASKS.items():
        stored = results.read(command.RESULTS, name)
        keys = sorted(itertools.product(task.series, task.peers))
        assert [key for key in keys if key not in stored] == []
        found += [stored[key] for key in keys]
    made = report.markdown(sorted(found, key=lambda one: one["task"]))
    assert made == command.RESULTS.with_suffix(".md").read_text()
