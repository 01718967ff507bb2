"""Pictures: what they show, and that they leave matplotlib as they found it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pandas
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex

import regimekit as rk
from regimekit import RegimekitError
from regimekit import metrics as evaluate
from regimekit import plotting as plot
from regimekit.plotting import style
from regimekit.results import Run

_DAYS = np.datetime64("2024-01-01") + np.arange(120)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    settings, backend = dict(matplotlib.rcParams), matplotlib.get_backend()
    yield
    plt.close("all")
    assert matplotlib.get_backend() == backend and dict(matplotlib.rcParams) == settings


@pytest.fixture(scope="module")
def fitted(stream: np.ndarray) -> tuple[Any, Run]:
    model = rk.br_ihmm(noise=0.1, prior_var=4.0, particles=20)
    return model, model.run(stream)


def _legend(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_run_shows_dates_names_the_level_and_edge_marks(
    fitted: tuple[Any, Run], stream: np.ndarray
) -> None:
    ax = plot.plot_run(fitted[1], pandas.Series(stream, name="load"), times=_DAYS, level=0.8)
    ax.figure.canvas.draw()
    assert ax.get_ylabel() == "load"
    assert {"80 % band", "forecast", "observed", "outlier beyond the edge"} <= set(_legend(ax))
    assert any("Feb" in text.get_text() for text in ax.get_xticklabels())
    assert ax.get_ylim()[1] < stream[45]  # the spike does not set the scale


def test_it_draws_into_given_axes(fitted: tuple[Any, Run], stream: np.ndarray) -> None:
    figure, (left, right) = plt.subplots(1, 2)
    assert plot.plot_run(fitted[1], stream, ax=left) is left
    assert plot.plot_regimes(fitted[0], right) is right
    assert plt.get_fignums() == [figure.number]


def test_a_regime_keeps_its_colour(fitted: tuple[Any, Run], stream: np.ndarray) -> None:
    figure = plot.run_figure(fitted[1], stream, truth=np.repeat([7, 3, 7, 3], 30))
    strips = figure.axes[1].collections
    found = {to_hex(strip.get_facecolor()[0]).upper() for strip in strips}
    ids = set(fitted[1].path.tolist()) - {-1}
    assert {style.regime_style(regime).colour for regime in ids} <= found
    assert [text.get_text() for text in figure.axes[1].get_yticklabels()] == ["true", "found"]


def test_regimes_and_outliers_have_distinct_styles() -> None:
    styles = [style.regime_style(regime) for regime in range(21)]
    assert len(set(styles)) == 21
    assert style.OUTLIER not in {one.colour for one in styles}


def test_thousands_of_outliers_are_thinned_and_the_furthest_kept(rng: np.random.Generator) -> None:
    y = rng.standard_normal(20_000)
    rows = np.arange(20_000)
    kept = style.thinned(rows, y)
    assert kept.size == 400 and np.argmax(np.abs(y - np.median(y))) in kept
    assert np.diff(kept).max() < 200  # all of the stream is represented


def test_a_series_without_values_is_drawn() -> None:
    run = rk.br_ihmm(particles=5).run([np.nan] * 5)
    plot.plot_run(run, [np.nan] * 5).figure.canvas.draw()
    with pytest.raises(RegimekitError, match=r"y must have the .* got 2"):
        plot.plot_run(run, [1.0, 2.0])


def test_regimes_by_coefficient(rng: np.random.Generator) -> None:
    features = rk.features.intercept() + rk.features.columns("wind")
    model = rk.br_ihmm(features=features, particles=10)
    with pytest.raises(RegimekitError, match="no regimes yet"):
        plot.plot_regimes(model)
    wind = rng.standard_normal(60)
    model.run(2 * wind, pandas.DataFrame({"wind": wind}))
    ax = plot.plot_regimes(model)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["intercept", "wind"]
    assert len(_legend(ax)) == len(model.regimes())


def test_forecast_continues_the_dates(fitted: tuple[Any, Run], stream: np.ndarray) -> None:
    ax = plot.plot_forecast(fitted[0], stream, _DAYS, horizon=10, level=0.95)
    assert "95 % band" in _legend(ax)
    median = ax.lines[-1]
    days = matplotlib.dates.num2date(median.get_xdata())
    assert [str(day.date()) for day in days[:2]] == ["2024-04-30", "2024-05-01"]
    wanted = [f.quantile(0.5) for f in fitted[0].forecast(10)]
    np.testing.assert_allclose(median.get_ydata(), wanted)
    plot.plot_forecast(fitted[0].forecast(3))


def test_calibration_from_a_scored_run(stream: np.ndarray) -> None:
    result = evaluate.prequential(rk.br_ihmm(particles=10), stream, skip=10)
    left, right = plot.plot_calibration(result)
    heights = [bar.get_height() for bar in left.patches if bar.get_width() < 0.5]
    assert sum(heights) == pytest.approx(1.0)
    shares = right.lines[1].get_ydata()
    assert list(shares) == sorted(shares)


def test_influence_shows_every_curve(fitted: tuple[Any, Run]) -> None:
    grid = np.linspace(-10, 10, 21)
    ax = plot.plot_influence(fitted[0], grid, clean=[0.5])
    assert _legend(ax) == ["both", "regimes", "coefficients"]
    both, regimes, coefficients = (line.get_ydata() for line in ax.lines)
    np.testing.assert_allclose(both, regimes + coefficients)
    model = rk.student_t_ihmm(particles=10, units="given")
    model.run(np.zeros(30))
    assert _legend(plot.plot_influence(model, grid, clean=[0.0])) == ["regimes"]


def test_a_run_draws_itself_over_the_callers_times(stream: np.ndarray) -> None:
    days = pandas.date_range("2024-01-01", periods=120)
    column = pandas.Series(stream, index=days, name="load")
    run = rk.br_ihmm(noise=0.1, particles=10).run(column)
    ax = run.plot()
    ax.figure.canvas.draw()
    assert ax.get_ylabel() == "load" and run.plot(label="kW").get_ylabel() == "kW"
    assert any("Feb" in text.get_text() for text in ax.get_xticklabels())
    figure, given = plt.subplots()
    assert run.plot(given, times=np.arange(120.0)) is given
    assert given.get_xlabel() == "time" and figure.axes == [given]


def test_a_run_knows_the_name_of_its_column(stream: np.ndarray) -> None:
    days = pandas.date_range("2024-01-01", periods=120)
    frame = pandas.DataFrame({"day": days, "load": stream})
    assert rk.make("last_value").run(frame).plot().get_ylabel() == "load"
    assert rk.make("last_value").run(stream).plot().get_ylabel() == "y"


def test_a_model_draws_its_regimes_by_name(rng: np.random.Generator) -> None:
    features = rk.features.intercept() + rk.features.columns("wind")
    model = rk.br_ihmm(features=features, particles=10)
    wind = rng.standard_normal(60)
    model.run(2 * wind, pandas.DataFrame({"wind": wind}))
    ax = model.plot_regimes()
    assert [text.get_text() for text in ax.get_xticklabels()] == ["intercept", "wind"]


def test_regimes_may_have_different_coefficients() -> None:
    class Model:
        name = "auto"

        def coefficient_names(self) -> list[str]:
            return ["intercept", "lag 1"]

        def regimes(self) -> list[rk.Regime]:
            pair, one = np.array([0.5, 0.8]), np.array([3.0])
            return [rk.Regime(0, 60, 0, 99, pair, pair / 9), rk.Regime(1, 40, 9, 80, one, one / 9)]

    ax = plot.plot_regimes(Model())
    assert [text.get_text() for text in ax.get_xticklabels()] == ["intercept", "lag 1", "level"]


def test_components_add_up_and_find_what_was_put_in(rng: np.random.Generator) -> None:
    n = 240
    level = np.where(np.arange(n) < n // 2, 10.0, 40.0)
    season = 2 * np.sin(2 * np.pi * np.arange(n) / 12)
    wind = rng.standard_normal(n)
    y = level + season + 3 * wind + 0.1 * rng.standard_normal(n)
    run = rk.br_ihmm(noise=9.0, prior_var=900.0, particles=10).run(y)
    axes = plot.plot_components(run, season=12, X=wind, times=np.arange(n))
    assert list(axes) == ["y", "level", "covariates", "season", "remainder"]
    drawn = {name: axes[name].lines[0].get_ydata() for name in axes if name != "level"}
    stays = [line.get_ydata() for line in axes["level"].lines]
    total = np.concatenate(stays) + sum(drawn[k] for k in ("covariates", "season", "remainder"))
    np.testing.assert_allclose(total, y, atol=1e-9)
    np.testing.assert_allclose(drawn["season"], season, atol=0.5)
    assert np.polyfit(wind, drawn["covariates"], 1)[0] == pytest.approx(3, abs=0.15)
    assert np.median(stays[-1]) == pytest.approx(40, abs=1.5)
    with pytest.raises(rk.RegimekitError, match="X must have the 240 rows of y, got 3"):
        plot.plot_components(run, X=np.zeros(3))


def test_without_matplotlib_comes_the_hint(
    fitted: tuple[Any, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (fitted[1].plot, fitted[0].plot_regimes):
        with pytest.raises(plot.NoPictures, match=r"pip install 'regimekit\[plot\]'"):
            draw()


def test_importing_does_not_import_matplotlib() -> None:
    code = "import sys, regimekit, regimekit.plotting; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
