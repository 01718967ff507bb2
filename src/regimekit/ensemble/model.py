"""`auto` as a model: configures the engine, hands over chunks of observations, reads results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.covariates import try_out
from regimekit.core.exceptions import SnapshotError, observation, whole
from regimekit.core.limits import MAX_COORDINATES
from regimekit.core.model import Array, Model
from regimekit.core.recorder import Block
from regimekit.distributions.forecast import Forecast, Forecasts, log_densities
from regimekit.distributions.mixture import Mixture
from regimekit.ensemble import design, multistep, paths
from regimekit.ensemble.engine import Engine
from regimekit.ensemble.ensemble import DEPTH
from regimekit.ensemble.explain import Advice, explain
from regimekit.ihmm import snapshots
from regimekit.ihmm.label_matching import KNOWN_SHARE
from regimekit.ihmm.regime_filter import RegimeFilter
from regimekit.preprocessing.frames import Row, Series, Table
from regimekit.preprocessing.time_index import seasons_of_labels
from regimekit.results import Regime, Run, Step, Transitions
from regimekit.serialization import schema
from regimekit.serialization.validation import Arrays, Part, Values

_CHUNK = 1024  # observations per call of the engine for d = 1
_MAX_SEASONS = 2


class Auto(Model):
    """Regimes and calibrated forecasts of any stream, in its own units, with default settings."""

    name = "auto"
    state_version = 14
    advised = False  # it emits its own warnings, as the stream goes on

    def __init__(
        self,
        features: Any = None,
        regime_features: Any = None,
        seasons: Any = None,
        regimes: str = "auto",
        seed: int = 0,
    ) -> None:
        self.lineup = design.Lineup(features, regime_features, seasons, regimes)
        self.named_seasons = self.lineup.seasons or ()
        self.seed = whole("seed", seed, least=0)
        self.dim: int | None = None
        self.advice = Advice()
        self.engine: Engine | None = None

    def settings(self) -> dict[str, Any]:
        return self.lineup.to_json() | {"seed": self.seed}

    @property
    def time(self) -> int:
        """Number of observations."""
        return 0 if self.engine is None else int(self.engine.time)

    def _run(self, series: Series, *options: Any) -> Run:
        # The dates of a stream determine which seasons to expect.
        if self.lineup.seasons is None and not self.lineup.explicit:
            seasons = seasons_of_labels(series.index)
            # Days have a year, too; it serves forecasts of several steps.
            self.lineup.seasons = (7, 365) if seasons == (7,) else seasons or None
        first = self.engine is None
        run = super()._run(series, *options)
        if self.engine is not None:
            self.advice.check_seasons(self.engine, self.named_seasons, first)
        return run

    def _check(self, x: Any) -> Row | None:
        return self.lineup.check(x)

    def _check_rows(self, table: Table | None, n: int) -> list[Any]:
        if table is None:
            return [self._check(None)] * n
        return super()._check_rows(table, n)

    def _fresh(self, dim: int, x: Row | None) -> Engine:
        return Engine(self.lineup, self.advice, dim, self.lineup.width(x), self.seed)

    def _started(self, dim: int, x: Row | None) -> Engine:
        """Return the engine, made with the first observation."""
        if self.engine is None:
            self.lineup.begin(x)
            self.engine, self.dim = self._fresh(dim, x), dim
        return self.engine

    def _predict(self, x: Row | None) -> Forecast:
        engine = self.engine or self._fresh(self.dim or 1, x)
        engine.expect(self.lineup.covariate_rows([x], self.time)[0])
        return _forecast(engine.forecast)

    def _block(self, y: Array, rows: list[Row | None]) -> Block:
        """Predict and update along checked observations (T, d)."""
        engine = self._started(y.shape[1], rows[0])
        first = self.time
        columns, events = engine.run(y, self.lineup.covariate_rows(rows, first))
        law, n = columns.parts, columns.parts.size
        forecasts = Forecasts(
            np.asarray(columns.offset),
            np.asarray(law.share)[:n],
            np.asarray(law.location)[:n],
            np.asarray(law.spread)[:n],
            np.asarray(law.dof)[:n],
            np.zeros(len(y)),
        )
        return Block(
            forecasts=forecasts,
            log_score=log_densities(forecasts, y),
            weight=np.asarray(columns.weight),
            outlier=np.asarray(columns.outlier, bool),
            regime=np.asarray(columns.regime),
            regime_probability=np.asarray(columns.regime_probability),
            change_probability=np.asarray(columns.change_probability),
            n_regimes=np.asarray(columns.n_regimes),
            ess=np.asarray(columns.ess),
            settled=np.ones(len(y), np.int64),
            events=events,
            first=first,
        )

    def _blocks(self, y: Array, rows: list[Any], progress: bool) -> Iterator[Block]:
        size = max(16, _CHUNK // y.shape[1] ** 2)
        for t in self._ticks(len(y), size, progress):
            if self.dim is not None and y.shape[1] != self.dim:
                observation(y[t], self.dim)
            yield self._block(y[t : t + size], rows[t : t + size])

    def _observe(self, y: Array, x: Row | None) -> tuple[Forecast, Step]:
        block = self._block(y.reshape(1, -1), [x])
        return block.forecasts[0], block.step(0)

    def _update(self, y: Array, x: Row | None) -> Step:
        engine = self._started(y.size, x)
        time = self.time
        values, events = engine.step(y, self.lineup.covariate_rows([x], time)[0])
        own = tuple(event for event in events if event.time == time)
        return Step._make((*values, own))

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        engine = self.engine or self._fresh(self.dim or 1, rows[0])
        raw = self.lineup.covariate_rows(rows, self.time)
        engine.expect(raw[0])
        first = _forecast(engine.forecast)
        if len(rows) == 1:
            return [first]
        laws = multistep.ahead(engine, raw)
        rng = np.random.default_rng([self.seed, self.time])
        laws = paths.mixed(engine, laws, raw, rng)
        engine.predicted = False
        if not engine.known_values.repeats():
            return [first, *(Forecast.normalized(*law) for law in laws)]
        mixtures = [_mixture(law) for law in laws]
        for mixture in mixtures:
            engine.known_values.round(mixture)
        return [first, *map(_forecast, mixtures)]

    def _regimes(self) -> list[Regime]:
        if self.engine is None:
            return []
        engine, member, selection = self.engine, self.engine.selected, self.engine.selection
        if member is None:
            return self._viewed_regimes(engine)
        known = {r.id: r for r in _filter_regimes(member.filter)}
        names = selection.selected_names
        ours = {own: known[theirs] for theirs, own in names.items() if theirs in known}
        out = []
        for i, (visits, first, last) in enumerate(selection.book.T.tolist()):
            mean, sd = design.coefficients(
                ours.get(i), member.spec, engine.scaling, engine.covariate_scaler
            )
            out.append(Regime(i, visits, first, last, mean, sd))
        return out

    def _viewed_regimes(self, engine: Engine) -> list[Regime]:
        """Return the regimes of the view: means and standard deviations of observations."""
        shape = engine.selection.chosen == engine.shape_model
        means, deviations = engine.shape.moments() if shape else engine.level.view.moments()
        theirs = {own: view for view, own in engine.selection.selected_names.items()}
        out = []
        for i, (visits, first, last) in enumerate(engine.selection.book.T.tolist()):
            k = theirs.get(i, 0)
            mean, sd = (each[k, : engine.dim].copy() for each in (means, deviations))
            out.append(Regime(i, visits, first, last, mean, sd))
        return out

    def transitions(self) -> Transitions:
        if self.engine is None or not self.engine.selection.n_regimes:
            return Transitions([], np.zeros((0, 0)))
        moves = self.engine.selection.reported_moves
        return Transitions(
            list(range(len(moves))), moves / (moves.sum(axis=1, keepdims=True) + 1.0)
        )

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each member in the forecast, largest first."""
        return {} if self.engine is None else self._sorted(self.engine.ensemble.aggregation.weight)

    @property
    def regret(self) -> dict[str, float]:
        """Mean loss of the mixture over that of each member since it joined, largest first.

        Losses are ranked probability scores in noise scales, bounded; above 1 the member would
        have been better.
        """
        if self.engine is None:
            return {}
        return self._sorted(self.engine.ensemble.aggregation.relative_loss())

    def _sorted(self, values: Any) -> dict[str, float]:
        assert self.engine is not None
        pairs = zip(self.engine.ensemble.names, np.asarray(values).tolist(), strict=True)
        return dict(sorted(pairs, key=lambda pair: -pair[1]))

    @property
    def found_seasons(self) -> list[int]:
        """Season lengths that forecasts use, in observations."""
        if self.engine is None:
            return []
        return [s for s in multistep.known_seasons(self.engine).periods if s < self.engine.time]

    def coefficient_names(self) -> list[str]:
        """Names of the coefficients of the selected regime model."""
        if self.engine is None:
            return []
        member = self.engine.selected
        spec = design.Spec("level") if member is None else member.spec
        return design.coefficient_names(spec, self.engine.dim)

    def explain(self) -> str:
        """Describe units, features, members, intervals, regimes and outliers."""
        return explain(self)

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if self.engine is None:
            return {"started": False}, {}
        engine = self.engine
        engine.ensemble.tidy()
        values, arrays = schema.pack_state(engine)
        more, first = self.lineup.pack()
        values |= more | {
            "started": True,
            "dim": self.dim,
            "n_x": engine.n_x,
            "seasons": engine.seasons,
            "proposed": engine.proposed,
            "outliers": engine.outliers,
            "said": self.advice.said,
        }
        for i, member in enumerate(engine.ensemble.members):
            values[f"member.{i}"], own = snapshots.pack(member.filter)
            arrays |= {f"member.{i}/{name}": array for name, array in own.items()}
        return values, arrays | first

    def _unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        kept, stored = Values.of(values), Arrays.of(arrays)
        if not kept.flag("started"):
            return
        dim = kept.whole("dim", 1, MAX_COORDINATES)
        stored.floats("scaling.centre", (dim,))  # before an engine of that size is allocated
        self.lineup.unpack(kept, stored)
        n_x = self.lineup.width(self.lineup.like)
        kept.whole("n_x", n_x, n_x)
        seasons = kept.wholes("seasons", None, 2, DEPTH - 2)
        if len(seasons) > _MAX_SEASONS or (seasons and self.lineup.explicit):
            raise SnapshotError(
                f"Invalid snapshot: seasons is {seasons[:5]}, expected at most {_MAX_SEASONS}, and "
                "none with given features."
            )
        engine = Engine(self.lineup, self.advice, dim, n_x, self.seed, seasons, False)
        for i, member in enumerate(engine.ensemble.members):
            own = Part(stored, f"member.{i}/")
            snapshots.unpack(member.filter, kept.part(f"member.{i}"), own)
        schema.unpack_state(engine, kept, stored)
        if len(engine.rows) != engine.scaling.size:
            raise SnapshotError(
                f"Invalid snapshot: rows has {len(engine.rows)} rows, expected "
                f"{engine.scaling.size}."
            )
        engine.proposed = kept.wholes("proposed", None, 2, DEPTH - 2)
        engine.outliers = kept.wholes("outliers", None)[-20:]
        self.advice.said = list(kept.words("said") or [])
        self.named_seasons = ()  # those of the settings may come from dates
        self.engine, self.dim = engine, dim
        try_out(lambda: self._predict(self.lineup.like))
        engine.predicted = False


def _filter_regimes(filter: RegimeFilter) -> list[Regime]:
    """Return the regimes that most of the particles' weight remembers, by the filter's labels."""
    held, label, pool = filter.row_mass(), np.asarray(filter.pool.label), filter.pool
    known = []
    for own in np.unique(label[held > 0]).tolist():
        rows = np.flatnonzero((label == own) & (held > 0))
        if held[rows].sum() >= KNOWN_SHARE - 1e-9:
            # The version that most of the weight shares.
            row = int(rows[np.argmax(held[rows])])
            visits, first, last = (
                int(c[row]) for c in (pool.visits, pool.first_seen, pool.last_seen)
            )
            mean, sd = filter.emission.coefficients(row)
            known.append(Regime(own, visits, first, last, mean, sd))
    return known


def _forecast(law: Mixture) -> Forecast:
    """Return a mixture of the core as a forecast."""
    return Forecast(*law.arrays())


def _mixture(components: multistep.Component) -> Mixture:
    """Return components as a mixture of the core."""
    share, location, spread, dof = components
    law = Mixture(location.shape[1], share.size)
    law.size = share.size
    np.asarray(law.share)[:] = share
    np.asarray(law.location)[:] = location
    np.asarray(law.spread)[:] = spread
    np.asarray(law.dof)[:] = dof
    return law
