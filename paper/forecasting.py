"""Tables of forecast errors and runtimes."""

from __future__ import annotations

from collections.abc import Callable

from paper.outcomes import ALL_ROWS
from paper.tables import Item, Line, Made, Results, comparison, parts_of, trivial
from regimekit.ihmm.published import MODELS as ONLINE

_PAPER_RMSE = {
    ("synthetic", "br_ihmm"): "46.1 ± 0.00301",
    ("synthetic", "wolf_ihmm"): "103.8 ± 0.01155",
    ("synthetic", "ihmm"): "101.7 ± 0.02636",
    ("synthetic", "beam_ihmm"): "2.9",
    ("synthetic", "bocd"): "123.12 ± 0.01365",
    ("electricity", "br_ihmm"): "0.47 ± 0.04",
    ("electricity", "wolf_ihmm"): "0.63 ± 0.03",
    ("electricity", "ihmm"): "0.57 ± 0.03",
    ("electricity", "beam_ihmm"): "0.32",
    ("electricity", "bocd"): "0.80 ± 0.11",
    ("ofi", "br_ihmm"): "0.616 ± 0.082",
    ("ofi", "wolf_ihmm"): "0.623 ± 0.089",
    ("ofi", "ihmm"): "0.620 ± 0.080",
    ("ofi", "beam_ihmm"): "0.552",
    ("ofi", "bocd"): "0.733",
}
_PAPER_SECONDS = {
    ("synthetic", "br_ihmm"): "64.0 ± 0.27",
    ("synthetic", "wolf_ihmm"): "66.1 ± 0.35",
    ("synthetic", "ihmm"): "66.3 ± 0.20",
    ("electricity", "br_ihmm"): "274.2 ± 0.5",
    ("electricity", "wolf_ihmm"): "351.1 ± 1.7",
    ("electricity", "ihmm"): "351.9 ± 1.4",
    ("ofi", "br_ihmm"): "95.2 ± 0.6",
    ("ofi", "wolf_ihmm"): "94.3 ± 1.8",
    ("ofi", "ihmm"): "96.1 ± 1.0",
}
STREAMS = ("synthetic", "electricity", "ofi")
GIVEN = ("electricity", "ofi")
_OTHERS = ("student_t_ihmm", "beam_ihmm", "bocd", "least_squares", "auto")
ON_MSFT = " (on MSFT: another series)"


def _printed(table: dict[tuple[str, str], str], stream: str, model: str) -> str:
    """Return the paper's number, marked if it is for another series (order flow)."""
    number = table.get((stream, model), "")
    return number + ON_MSFT if number and stream == "ofi" else number


def _forecast_lines(streams: tuple[str, ...]) -> list[Line]:
    lines = []
    for stream in streams:
        for model in (*ONLINE, *_OTHERS):
            text = _printed(_PAPER_RMSE, stream, model)
            lines.append(Line(stream, model, "rmse_observed", text))
        lines.append(trivial(stream, "rmse_observed_last_value", "last value"))
        lines += [Line(stream, model, "coverage") for model in (*ONLINE, *_OTHERS)]
        if stream == "synthetic":
            lines += _against_truth(stream)
        else:
            lines += [Line(stream, m, "rmse_observed" + ALL_ROWS) for m in (*ONLINE, *_OTHERS)]
    return lines


def _against_truth(stream: str) -> list[Line]:
    """Return lines with errors on the uncontaminated values, in which outliers do not dominate."""
    lines = [Line(stream, model, "rmse") for model in (*ONLINE, *_OTHERS)]
    lines += [Line(stream, model, "oracle_ratio") for model in (*ONLINE, "student_t_ihmm", "auto")]
    lines.append(trivial(stream, "rmse_last_value", "last value"))
    return [*lines, trivial(stream, "rmse_oracle", "oracle")]


def _runtime_lines() -> list[Line]:
    pairs = [(stream, model) for stream in STREAMS for model in ONLINE]
    wall = [Line(*pair, "seconds", _printed(_PAPER_SECONDS, *pair)) for pair in pairs]
    return wall + [Line(*pair, "cpu_seconds") for pair in pairs]


def _forecast(streams: tuple[str, ...]) -> Callable[[Results], Made]:
    def make(results: Results) -> Made:
        caption = (
            "The root mean square error of one-step forecasts, lower is better, and the coverage "
            "of the 90 % interval, which should be 0.9. Real series are scored after their "
            "training part; a score over all rows is marked."
        )
        return Made([comparison(results, _forecast_lines(streams), caption)])

    return make


def _runtimes(results: Results) -> Made:
    caption = "How long one run along a whole stream takes, without compiling."
    return Made([comparison(results, _runtime_lines(), caption)])


ITEMS = (
    Item(
        "forecast",
        "Forecast errors on the synthetic stream",
        "Table `tab:forecast_results`",
        "The paper's error is on the observed values: 1 % of them uniform on [-600, 600] put "
        "600 √(0.01 / 3) = 34.6 into the RMSE of a perfect forecast. We print that error and, "
        "beside it, the error on the uncontaminated values with the oracle's (the same filter "
        "with known regimes and outliers). The signal has a standard deviation of 100 "
        "(reasons: [protocol](protocol.md)). Every run draws its own stream; the paper's "
        "deviation of 0.003 can only be that of runs over one stream. *beam_ihmm* has seen the "
        "whole stream before its first output; its error is not a forecast's, and it uses the R "
        "and Sigma_0 that tuning found for ihmm. *bocd*: the paper gives no settings; it is tuned "
        "like the others.",
        _forecast(("synthetic",)),
        parts_of(_forecast_lines(("synthetic",))),
    ),
    Item(
        "forecast_real",
        "Forecast errors on electricity and order flow",
        "Table `tab:forecast_results`",
        "*Electricity.* Scored are the hours after the first 12 000, as the training part has been "
        "seen by the search; scores of all hours are below. R is not stated; we take 0.02 for the "
        "printed settings (`unstated_noise` varies it, `baseline_noise` has the values that the "
        "baselines imply). The features have no lag, so the last value, which they do not use, is "
        "the forecast to beat. *Order flow.* The paper's MSFT series is not public. Ours is "
        "60-tick sums of E-mini S&P 500 ticks: compare the models on it with each other, never "
        "with the paper's 0.616. The paper's BOCD row is from Tsaknaki et al. (2025), which is not "
        "implemented: `bocd` with the same features stands in for it. The printed settings fix the "
        "lag's coefficient at rho; tuned models learn it. Both series are standardised over all "
        "rows as in the paper, for every model alike. *beam_ihmm* and *bocd*: as on "
        "[forecast](forecast.md).",
        _forecast(GIVEN),
        parts_of(_forecast_lines(GIVEN)),
    ),
    Item(
        "runtimes",
        "Runtimes",
        "Table `tab:runtimes`",
        "The paper ran JAX on a GPU, we run compiled loops on one CPU core per run; side by side "
        "with `--jobs` above 1, runs share the machine, so CPU seconds stand beside the clock's. "
        "What can be compared is the order of the models and what batching saves. Under the "
        "paper's rule particles draw the prior mean of their own new regimes (D9) and share no "
        "posterior, which costs most where there are 100 features.",
        _runtimes,
        lambda plan: parts_of(_runtime_lines())(plan),
    ),
)
