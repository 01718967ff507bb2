"""Changepoints of the real series: the paper's list, and what people marked.

Indices are 0-based and name the first observation of a new segment. The people are the
annotators of the Turing Change Point Dataset (van den Burg and Williams 2020; MIT licence); they
saw every sixth point of the well-log series, so their indices are times six there, +-5.
"""

from __future__ import annotations

from collections.abc import Mapping

# The paper's benchmark: its offline sampler's changepoints, runs under 50 points removed. They
# come from a model, not from people.
WELL_LOG_PAPER = (
    20,
    84,
    360,
    445,
    720,
    825,
    1071,
    1223,
    1433,
    1527,
    1718,
    1867,
    2049,
    2409,
    2470,
    2532,
    2593,
    2784,
    3191,
    3261,
    3520,
    3743,
    3890,
    3966,
)

_WELL_LOG_EVERY_SIXTH = {
    "6": (179, 255, 281, 311, 343, 402, 413, 422, 432, 462, 464),
    "7": (179, 255, 281, 312, 343, 402, 412, 422, 432),
    "8": (179, 255, 282, 312, 343, 402, 413, 422, 432),
    "12": (177, 467),
    "13": (4, 179, 255, 281, 311, 344, 402, 412, 422, 432, 462, 464, 521, 526, 620, 643, 661),
}
_RUN_LOG = (60, 96, 114, 174, 204, 240, 258, 317)

BY_PEOPLE: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "well_log": {who: tuple(6 * t for t in marks) for who, marks in _WELL_LOG_EVERY_SIXTH.items()},
    "tcpd/run_log": {
        "6": _RUN_LOG,
        "7": (60, 96, 114, 177, 204, 240, 258, 317),
        "8": _RUN_LOG,
        "10": (2, *_RUN_LOG),
        "12": (),
    },
    "tcpd/quality_control_1": {"6": (143,), "7": (144,), "8": (144,), "9": (146,), "12": (144,)},
    "tcpd/quality_control_2": {"6": (), "8": (98,), "9": (99,), "12": (97,), "13": (97,)},
    "tcpd/nile": {"6": (), "7": (28,), "8": (), "12": (28,), "13": (28,)},
}
