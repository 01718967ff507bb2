"""What is told of a stretch of observations: forecasts, weights, regimes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_COMPONENTS = ("share", "location", "spread", "dof")


class Track(NamedTuple):
    """What is told of each observation, (T,) each unless said.

    Attributes:
        weight: posterior mean of w^2.
        change: posterior probability that the regime has just changed.
        ess: effective sample size.
        regime: id reported (a birth).
        known: regimes known.
        probability: of the regime reported.
        settled: observations of the longest batch that has just ended.
        offset: (T + 1,) where the components of each forecast begin.
        share, location, spread, dof: (P,), (P, d), (P, d, d), (P,) components.
    """

    weight: np.ndarray
    change: np.ndarray
    ess: np.ndarray
    regime: np.ndarray
    known: np.ndarray
    probability: np.ndarray
    settled: np.ndarray
    offset: np.ndarray
    share: np.ndarray
    location: np.ndarray
    spread: np.ndarray
    dof: np.ndarray


def blank_track(n: int, room: int, dim: int) -> Track:
    """A track of n observations whose forecasts have `room` components in all."""
    return Track(
        weight=np.empty(n),
        change=np.empty(n),
        ess=np.empty(n),
        regime=np.empty(n, np.int64),
        known=np.empty(n, np.int64),
        probability=np.empty(n),
        settled=np.empty(n, np.int64),
        offset=np.zeros(n + 1, np.int64),
        share=np.empty(room),
        location=np.empty((room, dim)),
        spread=np.empty((room, dim, dim)),
        dof=np.empty(room),
    )


def cut(track: Track, n: int) -> Track:
    """The first n observations of a track, and no room beyond their components."""
    end = int(track.offset[n])
    parts = {
        name: array[:end] if name in _COMPONENTS else array[:n]
        for name, array in track._asdict().items()
    }
    return Track(**parts | {"offset": track.offset[: n + 1]})


def joined(tracks: list[Track]) -> Track:
    """One track of consecutive ones."""
    if len(tracks) == 1:
        return tracks[0]
    tracks = [cut(track, track.weight.size) for track in tracks]
    parts = {name: np.concatenate([getattr(t, name) for t in tracks]) for name in Track._fields}
    sizes = np.concatenate([np.diff(track.offset) for track in tracks])
    return Track(**parts | {"offset": np.append(0, np.cumsum(sizes))})
