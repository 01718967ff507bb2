"""One stream as `auto` knows it: units, members, regimes and intervals together.

An observation goes one way: what was expected (look), the forecast of it in the user's units, the
units, the members, the correction of intervals, the reading of regimes, a look for seasons.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError
from regimekit.distributions.forecast import Forecast
from regimekit.ensemble import design
from regimekit.ensemble import multistep as ahead
from regimekit.ensemble import seasonality as seasons
from regimekit.ensemble.advice import Advice
from regimekit.ensemble.calibration import Calibration, Components
from regimekit.ensemble.ensemble import DEPTH, Ensemble, Heard, Look
from regimekit.ensemble.members import RegimeMember, Spec
from regimekit.ensemble.regime_selection import Reading
from regimekit.preprocessing.frames import Row
from regimekit.preprocessing.scaling import MOMENTS, Units
from regimekit.results import OUTLIER, Event, Regime, Step
from regimekit.serialization.validation import Arrays, Part, Values

Array = NDArray[np.float64]

_WINDOW = 1024  # observations kept to begin again from
_REPLAY = 500  # of which a member that joins late is shown so many
_LOOKS = 1000  # observations between looks for seasons; oftener at first:
_FIRST_LOOKS = frozenset([*range(8, 20), *(round(20 * 1.1**k) for k in range(42))])
_OUTLIER = 0.2  # an observation less likely regular than this is reported
_FAINT = 1e-4  # components of the forecast with a smaller share are left out
_SEASONS = 2  # known at a time
_FIRST = 20  # observations after which the target is looked at
_NAMED = 20  # outliers remembered by their time


class Expected(NamedTuple):
    """The next observation before it comes."""

    raw: Array  # covariates as given
    look: Look
    corrected: Components  # in units
    forecast: Forecast  # the same in the user's units


class Stream:
    """The state after the first observation: dimension and covariates are known."""

    def __init__(self, plan: design.Lineup, dim: int, x: Row | None, seed: int) -> None:
        self.plan, self.dim, self.seed = plan, dim, seed
        self.n_x = plan.width(x)
        self.units = Units(dim, _WINDOW)
        self.scaler = design.Scaler(self.n_x)
        self.rows: list[Array] = []  # covariates beside units.buffer, as given
        self.seasons: list[int] = []
        self.proposed: list[int] = []
        self.ensemble = self._fresh()
        self.readers = self._readers()
        self.reading = Reading(len(self.readers), start=plan.first_reader)
        self.calibration = Calibration()
        self.advice = Advice()
        self.outliers: list[int] = []
        self.n_outliers = 0
        self._expected: tuple[tuple[int, bytes], Expected] | None = None

    def _readers(self) -> list[int]:
        """Which regime members read regimes."""
        return [i for i, member in enumerate(self.ensemble.regimes) if member.spec.reads]

    def _fresh(self) -> Ensemble:
        return Ensemble(self._members(), self.dim, self.seed, self._season)

    @property
    def _season(self) -> int:
        """The period of the seasonal members; 0 for none."""
        return self.seasons[0] if self.seasons else 0

    def _members(self) -> list[Spec]:
        """Of all regression members that belong to the plan and to the seasons found."""
        specs = self.plan.specs(self.n_x)
        return [*specs, *self.plan.season(self.seasons, self.n_x)] if self.seasons else specs

    def expect(self, x: Row | None, time: int) -> Expected:
        """What is expected next; remembered, for predict is usually followed by update."""
        raw = self.plan.covariates(x, time)
        key = (time, raw.tobytes())
        if self._expected is None or self._expected[0] != key:
            look = self.ensemble.look(self.scaler.scaled(raw))
            corrected = self.calibration.apply(self.components(look))
            self._expected = key, Expected(raw, look, corrected, self._published(corrected))
        return self._expected[1]

    def components(self, look: Look) -> Components:
        """The mixture of all members, in units, before correction."""
        keep = look.weight > _FAINT * look.weight.max()
        share = look.weight[keep]
        p = look.parts
        return Components(share / share.sum(), p.location[keep], p.spread[keep], p.dof[keep])

    def _published(self, corrected: Components) -> Forecast:
        """A corrected mixture in the user's units."""
        return self.units.forecast(Forecast.mixture(*corrected))

    def observe(self, y: Array, x: Row | None, time: int) -> tuple[Forecast, Step]:
        raw, look, corrected, forecast = self.expect(x, time)
        self._expected = None
        z = self.units.to_units(y)
        rebuilt = self._learn_units(y, raw)
        if rebuilt:
            weight, steps, log_scores = self._rebuild()
        else:
            weight, steps, log_scores = self.ensemble.observe(z, self.scaler.scaled(raw), look)
        seen = not np.isnan(y).all()
        if seen and not rebuilt:  # what was expected in wrong units says nothing about intervals
            self.calibration.learn(corrected, z)
        if seen:
            self._advise(weight)
        events = self._read(time, steps, log_scores, weight, seen)
        self._look_for_seasons()
        return forecast, self._step(forecast, y, steps, weight, seen, events)

    def _advise(self, weight: float) -> None:
        n, c = self.units.count, self.calibration
        self.advice.watch(n, weight < _OUTLIER, c.held, c.told)
        if n == _FIRST and self.dim == 1:
            self.advice.first_look(np.array(self.units.buffer)[:, 0])

    def _learn_units(self, y: Array, raw: Array) -> bool:
        """Whether units, or the scales of covariates, are others now."""
        self.rows.append(raw)
        rebuild = self.units.learn(y)
        self.rows = self.rows[-len(self.units.buffer) :]
        return rebuild or (self.n_x > 0 and self.units.count in MOMENTS)

    def _rebuild(self) -> Heard:
        """Begin again in the new units, on what is in the buffer."""
        self.reading.restart(len(self.readers))
        self.scaler.learn(np.array(self.rows).reshape(len(self.rows), -1), self.units.spread())
        self.ensemble = self._fresh()
        self.readers = self._readers()
        heard = Heard(1.0, {}, np.zeros(0))
        for i, (y, raw) in enumerate(zip(self.units.buffer, self.rows, strict=True)):
            heard = self._feed(self.ensemble, y, raw)
            if i < len(self.rows) - 1:
                self.reading.watch([heard.steps[k] for k in self.readers])
        self.reading.rejoin()
        return heard

    def _feed(self, ensemble: Ensemble, y: Array, raw: Array) -> Any:
        covariates = self.scaler.scaled(raw)
        return ensemble.observe(self.units.to_units(y), covariates, ensemble.look(covariates))

    def _read(
        self, time: int, steps: dict[int, Step], log_scores: Array, weight: float, seen: bool
    ) -> list[Event]:
        readers, events = self.readers, []
        if seen and weight < _OUTLIER:
            self.outliers = [*self.outliers[1 - _NAMED :], time]
            self.n_outliers += 1
            now = self.reading.regime
            events.append(Event(time, OUTLIER, max(now, 0), now, time))
        return events + self.reading.hear(time, [steps[k] for k in readers], log_scores[readers])

    def _step(
        self,
        forecast: Forecast,
        y: Array,
        steps: dict[int, Step],
        weight: float,
        seen: bool,
        events: list[Event],
    ) -> Step:
        own = steps[self.readers[self.reading.chosen]]
        return Step(
            regime=self.reading.regime,
            regime_probability=own.regime_probability,
            weight=min(max(weight, float(np.finfo(float).tiny)), 1.0),
            outlier=seen and weight < _OUTLIER,
            change_probability=own.change_probability,
            n_regimes=len(self.reading.book),
            ess=own.ess,
            log_score=float(forecast.log_density(y if self.dim > 1 else y[0])),
            settled=1,
            events=tuple(events),
        )

    def _look_for_seasons(self) -> None:
        """Now and then: propose seasons, and let a member that knows them join."""
        n = self.units.count
        if (n not in _FIRST_LOOKS and n % _LOOKS) or self.plan.explicit:
            return
        values = np.array(self.units.buffer)[:, 0]
        told = tuple(s for s in self.plan.seasons or () if s + 1 < DEPTH)
        found = [s for s in seasons.propose(values, _SEASONS, told) if s + 1 < DEPTH]
        again, self.proposed = found == self.proposed, found
        calendar = set(found) <= set(told or seasons.CALENDAR)
        likely = calendar and not self.seasons
        if not found or set(found) <= set(self.seasons) or not (likely or again):
            return  # what no calendar has, or would take the place of another, is proposed twice
        self.seasons = found
        specs = self.plan.season(found, self.n_x)
        newcomer = Ensemble(specs, self.dim, self.seed + 7, found[0])
        for y, raw in list(zip(self.units.buffer, self.rows, strict=True))[-_REPLAY - max(found) :]:
            self._feed(newcomer, y, raw)
        before = self.readers
        self.ensemble.join(newcomer, found[0])
        self.readers = self._readers()
        if self.plan.reader is None:
            known = len(self.readers) == len(before)
            # Where a calendar's season is found, the other readers take it for regimes.
            self.reading.enlarge(len(before) - 1 if known else None, believed=calendar)

    def ahead(self, rows: list[Row | None], time: int) -> list[Forecast]:
        """Forecasts of the next len(rows) observations."""
        covariates = [
            self.scaler.scaled(self.plan.covariates(x, time + h)) for h, x in enumerate(rows)
        ]
        first = self.expect(rows[0], time)
        if len(rows) == 1:
            return [copied(first.forecast)]
        rng = np.random.default_rng([self.seed, time])
        later = ahead.simulate(self.ensemble, first.look, covariates, rng)
        corrected = [self.calibration.apply(law, far=True) for law in later]
        return [copied(first.forecast), *map(self._published, corrected)]

    @property
    def reader(self) -> RegimeMember:
        """The member that reads regimes now."""
        return self.ensemble.regimes[self.readers[self.reading.chosen]]

    def weights(self) -> dict[str, float]:
        """How much each member counts now, largest first."""
        pairs = zip(self.ensemble.names, self.ensemble.mixer.weight.tolist(), strict=True)
        return dict(sorted(pairs, key=lambda pair: -pair[1]))

    def regret(self) -> dict[str, float]:
        """The mixture's mean loss over each member's, since that member joined; largest first."""
        pairs = zip(
            self.ensemble.names, self.ensemble.mixer.against_members().tolist(), strict=True
        )
        return dict(sorted(pairs, key=lambda pair: -pair[1]))

    def coefficient_names(self) -> list[str]:
        """Of the reader's regimes."""
        return design.names(self.reader.spec, self.dim)

    def regimes(self) -> list[Regime]:
        """The regimes reported so far, with what the present reader knows of them."""
        member = self.reader
        known = {r.id: r for r in member.model.regimes()}
        ours = {own: known[theirs] for theirs, own in self.reading.names.items() if theirs in known}
        out = []
        for i, entry in enumerate(self.reading.book):
            mean, sd = design.coefficients(ours.get(i), member.spec, self.units, self.scaler)
            out.append(Regime(i, entry.visits, entry.first, entry.last, mean, sd))
        return out

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        parts = {
            "units": self.units.pack(),
            "ensemble": self.ensemble.pack(),
            "reading": self.reading.pack(),
        }
        values: dict[str, Any] = {key: part[0] for key, part in parts.items()}
        arrays = {f"{key}/{k}": a for key, part in parts.items() for k, a in part[1].items()}
        values |= {
            "calibration": self.calibration.pack(),
            "seasons": self.seasons,
            "proposed": self.proposed,
            "advice": self.advice.pack(),
            "outliers": self.outliers,
            "n_outliers": self.n_outliers,
            "n_x": self.n_x,
        }
        arrays |= self.scaler.pack() | {
            "rows": np.array(self.rows).reshape(len(self.rows), self.n_x)
        }
        return values, arrays

    @classmethod
    def unpack(
        cls, plan: design.Lineup, values: Values, arrays: Arrays, dim: int, seed: int
    ) -> Stream:
        """What `pack` packed, for this plan."""
        own = cls.__new__(cls)
        own.plan, own.dim, own.seed, own.n_x = plan, dim, seed, plan.width(plan.like)
        values.whole("n_x", own.n_x, own.n_x)
        own.units = Units(dim, _WINDOW)
        own.units.unpack(values.part("units"), Part(arrays, "units/"))
        own.scaler = design.Scaler(own.n_x)
        own.scaler.unpack(arrays)
        shape, most = (len(own.units.buffer), own.n_x), design.LARGEST
        own.rows = list(arrays.floats("rows", shape, -most, most))
        own._unpack_seasons(values)
        own.ensemble = Ensemble.unpack(
            values.part("ensemble"),
            Part(arrays, "ensemble/"),
            own._members(),
            dim,
            seed,
            own._season,
        )
        own.readers = own._readers()
        own.reading = Reading(len(own.readers))
        own.reading.unpack(values.part("reading"), Part(arrays, "reading/"))
        own.calibration, own.advice = Calibration(), Advice()
        own.calibration.unpack(values.part("calibration"))
        own.advice.unpack(values.part("advice"))
        own.outliers = values.wholes("outliers", None)[-_NAMED:]
        own.n_outliers = values.whole("n_outliers")
        own._expected = None
        return own

    def _unpack_seasons(self, values: Values) -> None:
        """The periods that were found; none is looked for where features were given."""
        self.seasons = values.wholes("seasons", None, 2, DEPTH - 2)
        self.proposed = values.wholes("proposed", None, 2, DEPTH - 2)
        if len(self.seasons) > _SEASONS or (self.seasons and self.plan.explicit):
            raise SnapshotError(f"The snapshot's seasons {self.seasons[:5]} are not the model's.")


def copied(forecast: Forecast) -> Forecast:
    """The receiver's own arrays."""
    return Forecast(
        forecast.share.copy(),
        forecast.location.copy(),
        forecast.spread.copy(),
        forecast.dof.copy(),
        forecast.outlier,
    )
