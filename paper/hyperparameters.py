"""The tables of hyper-parameters: the paper's fitted values beside ours, and what is tuned."""

from __future__ import annotations

from typing import Any

from paper import settings
from paper.settings import FITTED, ONLINE, TUNED, Fitted
from paper.tables import NO_VALUE, Item, Made, Results, Table, Value

_SYMBOLS = {
    "tau_ess": "tau_ESS", "c2": "c²", "batch": "B", "sigma0": "Sigma_0", "rho": "rho*",
    "degree": "p",
}  # fmt: skip
_LISTED = {
    "well_log": ("tau_ess", "c2", "batch"),
    "synthetic": ("tau_ess", "c2", "batch"),
    "ofi": ("tau_ess", "c2", "batch", "sigma0", "rho"),
    "electricity": ("tau_ess", "c2", "batch", "sigma0", "degree"),
}


def _printed(fitted: Fitted, name: str) -> Value:
    value: Value = getattr(fitted, name)
    return NO_VALUE if value is None else str(value)


def _used(stream: str, model: str, name: str) -> Value:
    """Our value of a hyper-parameter, in the paper's terms."""
    chosen = settings.ours(stream, model)
    if name == "degree":
        return settings.degree(stream, model, "holdfast")
    if name == "tau_ess":
        return float(settings.PARTICLES * chosen.get("ess_threshold", 0.5))
    if name == "c2":
        return NO_VALUE if model == "ihmm" else round(float(chosen["threshold"]) ** 2, 4)
    if name == "batch":
        return int(chosen["batch"]) if "batch" in chosen else NO_VALUE
    return _from_prior(chosen, name)


def _from_prior(chosen: dict[str, Any], name: str) -> Value:
    """Sigma_0 and rho* read back out of the prior; a plain Sigma_0 where there is no rho*."""
    mean, var = chosen.get("prior_mean"), chosen["prior_var"]
    if not isinstance(mean, list):
        return float(var) if name == "sigma0" else None
    rho = float(mean[1])
    return rho if name == "rho" else round(float(var[0]) / (1 - rho) ** 2, 9)


def _rows() -> list[list[Value]]:
    rows: list[list[Value]] = []
    for stream, names in _LISTED.items():
        for name in names:
            printed = [_printed(FITTED[stream][model], name) for model in ONLINE]
            used = [_used(stream, model, name) for model in ONLINE]
            rows.append([stream, _SYMBOLS[name], *printed, *used])
        rows.append(_noise_row(stream))
    return rows


def _noise_row(stream: str) -> list[Value]:
    taken: list[Value] = [
        f"not stated, {settings.paper(stream, model)['noise']:.4g} taken" for model in ONLINE
    ]
    used = [round(float(settings.ours(stream, model)["noise"]), 6) for model in ONLINE]
    return [stream, "R", *taken, *used]


def _fitted(_: Results) -> Made:
    names = [f"{model}, {who}" for who in ("paper", "holdfast rule") for model in ONLINE]
    kept = sorted(path.stem for path in TUNED.glob("*.json"))
    text = ", ".join(kept) if kept else "none yet: the values are our starting points"
    caption = f"Tuned on the training part (files in `paper/tuned`): {text}."
    return Made([Table(["stream", "hyper-parameter", *names], _rows(), caption)])


def _summary(_: Results) -> Made:
    rows: list[list[Value]] = [
        ["tau_ESS", "`ess_threshold`, a share of the particles", "all", "BayesOpt"],
        ["c²", "`threshold` squared", "wolf_ihmm, br_ihmm", "BayesOpt"],
        ["B", "`batch`", "br_ihmm", "BayesOpt"],
    ]
    columns = ["hyper-parameter", "setting", "models", "chosen in the paper by"]
    return Made([Table(columns, rows)])


ITEMS = (
    Item(
        "hyperparameters",
        "Fitted hyper-parameters",
        "Table `tab:fitted_hyperparams`",
        "The left columns are what runs under the paper's rule use. The paper tunes on a "
        "training part by Bayesian optimisation for its own score; under the holdfast rule the "
        "same numbers mean something else (c is measured under the predictive variance, D2), so "
        "they are not carried over.",
        _fitted,
    ),
    Item(
        "hyperparameter_summary",
        "Summary of hyper-parameters",
        "Table `tab:hyperparams`",
        "The same three settings exist here; `holdfast tune` also searches R and Sigma_0, which "
        "the paper fixes or fits from case to case.",
        _summary,
    ),
)
