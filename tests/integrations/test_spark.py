"""A real local Spark: tables and streams say what a plain loop says, also after kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import spark_stream
from waiting import wait

import regimekit as rk

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The copy keyword:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
SETTINGS = {"particles": 10}
CHOICE = {"model": "student_t_ihmm", "settings": SETTINGS, "silence": "15 minutes"}
MINUTE = pd.Timedelta("1min")
START = pd.Timestamp("2026-01-01")


def plain(y) -> rk.Run:
    return rk.make("student_t_ihmm", **SETTINGS).run(np.asarray(y, float))


def rows(key: str, minutes, rng) -> pd.DataFrame:
    stamps = START + MINUTE * np.asarray(minutes)
    return pd.DataFrame({"k": key, "t": stamps, "v": rng.standard_normal(len(stamps))})


def deliver(folder: Path, parts: list[pd.DataFrame]) -> None:
    """Files in the order of their age, which is the order Spark reads them in."""
    (folder / "in").mkdir()
    for i, part in enumerate(parts):
        path = folder / "in" / f"{i:03}.parquet"
        part.astype({"t": "datetime64[us]"}).to_parquet(path, index=False)
        os.utime(path, (1_000_000_000 + i, 1_000_000_000 + i))


def test_groups_are_the_plain_loop(spark, rng):
    from regimekit.integrations.spark import run_groups

    frame = pd.concat([rows("a", range(40), rng), rows("b", range(25), rng)])
    frame.loc[frame.index == 7, "v"] = np.nan
    twice = pd.concat([frame, frame.head(3)]).sample(frac=1, random_state=0)
    table = run_groups(
        spark.createDataFrame(twice), "k", "t", "v", model="student_t_ihmm", settings=SETTINGS
    ).toPandas()
    assert len(table) == 65
    for key, part in table.groupby("k"):
        part, run = part.sort_values("t"), plain(frame[frame["k"] == key]["v"])
        assert part["mean"].tolist() == run.mean.tolist()
        assert part["regime"].tolist() == run.regime.tolist()
        np.testing.assert_array_equal(part["anomaly_score"], run.anomaly_score)
        assert part["lower"].to_numpy() == pytest.approx(run.lower)


def test_groups_with_covariates_and_two_keys(spark, rng):
    from regimekit.integrations.spark import run_groups

    frame = rows("a", range(60), rng).assign(plant=1, x=rng.standard_normal(60))
    frame["v"] = 2 * frame["x"] + 0.1 * frame["v"]
    table = run_groups(
        spark.createDataFrame(frame),
        ["plant", "k"],
        "t",
        "v",
        covariates=["x"],
        model="student_t_ihmm",
        settings=SETTINGS,
    ).toPandas()
    late = table.sort_values("t").tail(20)
    assert (late["mean"] - late["y"]).abs().mean() < 0.3
    assert list(table.columns[:3]) == ["plant", "k", "t"]


def test_refusals_name_the_argument(spark, rng):
    from regimekit.integrations.spark import follow, run_groups

    frame = spark.createDataFrame(rows("a", range(3), rng))
    with pytest.raises(rk.RegimekitError, match="target='w' is not a column"):
        run_groups(frame, "k", "t", "w")
    with pytest.raises(rk.RegimekitError, match="batch"):
        run_groups(frame, "k", "t", "v", model="br_ihmm", settings={"batch": 0})
    with pytest.raises(rk.RegimekitError, match="must be a timestamp"):
        follow(frame, "k", "v", "v", model="br_ihmm")


def test_stream_reports_late_rows_and_silence(spark, rng, tmp_path):
    from regimekit.integrations.spark import late_rows

    first = pd.concat([rows("a", range(20), rng), rows("b", range(20), rng)])
    second = rows("a", range(20, 40), rng)
    late = rows("a", [15], rng)  # a has learnt minute 19
    lost = rows("a", [5], rng)  # Spark drops it: the batch before began at 19 - 10 = 9 minutes
    more = [rows("a", range(40, 60), rng), rows("a", range(60, 65), rng)]
    again = second.head(4)
    shuffled = pd.concat([second, again, late]).sample(frac=1, random_state=0)
    deliver(tmp_path, [first, shuffled, pd.concat([more[0], lost]), more[1]])
    query = spark_stream.start(spark, tmp_path / "in", tmp_path, "k", "t", "v", **CHOICE)
    query.awaitTermination()
    table = spark.read.parquet(str(tmp_path / "table")).toPandas().sort_values("t")
    kinds = dict(iter(table.groupby("kind")))
    assert late_rows(query) == 1
    assert kinds["late"]["t"].tolist() == [START + 15 * MINUTE]
    assert kinds["late"]["late"].tolist() == [1]
    assert kinds["silence"]["k"].tolist() == ["b"]
    assert kinds["silence"]["t"].tolist() == [START + 19 * MINUTE]
    a = kinds["observation"][kinds["observation"]["k"] == "a"]
    y = pd.concat([first[first["k"] == "a"], second, *more])["v"]
    assert a["mean"].tolist() == plain(y).mean.tolist()


def test_a_killed_driver_loses_and_repeats_nothing(spark, rng, tmp_path):
    whole = pd.concat([rows(key, range(90), rng) for key in "abc"]).sort_values(["t", "k"])
    deliver(tmp_path, [whole.iloc[i : i + 90] for i in range(0, 270, 90)])
    for batch in (1, 2):
        _kill_inside(batch, tmp_path)
    assert _begin(tmp_path).wait(timeout=300) == 0
    table = spark.read.parquet(str(tmp_path / "table")).toPandas()
    table = table[table["kind"] == "observation"]
    assert len(table) == len(table.drop_duplicates(["k", "t"])) == 270
    for key, part in table.groupby("k"):
        run = plain(whole[whole["k"] == key]["v"])
        assert part.sort_values("t")["mean"].tolist() == run.mean.tolist()


def _begin(folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [
            *(sys.executable, spark_stream.__file__, str(folder / "in"), str(folder), "--once"),
            *("--key", "k", "--time", "t", "--target", "v", "--silence", "15 minutes"),
            *("--model", "student_t_ihmm", "--particles", "10"),
        ],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _kill_inside(batch: int, folder: Path) -> None:
    """kill -9 the driver and its workers while this batch is planned but not committed."""
    process = _begin(folder)
    planned, committed = (
        folder / "checkpoint" / name / str(batch) for name in ("offsets", "commits")
    )
    wait(lambda: planned.exists() or process.poll() is not None, "the plan of the batch")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert planned.exists()
    assert not committed.exists()


def test_the_page_runs(spark, tmp_path, rng):
    from docs.pages import run_page

    (tmp_path / "in").mkdir()
    rows("a", range(5), rng).set_axis(["sensor", "time", "value"], axis=1).astype(
        {"time": "datetime64[us]"}
    ).to_parquet(tmp_path / "in" / "0.parquet")
    folders = {f"folder_{name}": str(tmp_path / name) for name in ("in", "out", "checkpoint")}
    assert run_page("docs/spark.md", tmp_path, spark=spark, **folders) == 2
    query = spark.streams.active
    for one in query:
        one.awaitTermination()
    assert spark.read.parquet(folders["folder_out"]).count() == 5


def test_the_plan_is_put_between_its_marks():
    from benchmarks import spark_plan

    costs = spark_plan.Costs(
        "model", 1000, 2000, 1e-3, 2e-3, dict.fromkeys(spark_plan.ROWS, 3e-3), 1.5
    )
    table = spark_plan.plan_table(costs, keys=1_000_000)
    assert "needs 1.5 s once" in table and " processes 333 rows a second if 60 rows" in table
    assert "| 1 | 3.00 | 6.00 | 167 | 120 | 6,000 |" in table
    text = f"before\n{spark_plan.BEGIN}\nold\n{spark_plan.END}\nafter\n"
    assert spark_plan.put(text, "new") == text.replace("old", "new")
