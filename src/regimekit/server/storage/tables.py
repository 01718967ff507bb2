"""The tables as queries see them: names, kinds and keys of columns.

`migrations` makes the tables and says what may be null or must be unique; a test keeps the two in
step.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, LargeBinary, MetaData, Table, Text

metadata = MetaData()


def _table(
    name: str, key: str, whole: str = "", real: str = "", words: str = "", binary: str = ""
) -> Table:
    """Columns by kind, those of the primary key first; their names are parted by spaces."""
    kinds = (BigInteger, whole), (Float, real), (Text, words), (LargeBinary, binary)
    return Table(
        name,
        metadata,
        *(Column(column, BigInteger, primary_key=True) for column in key.split()),
        *(Column(column, kind) for kind, columns in kinds for column in columns.split()),
    )


# n_rows is the offset: what is stored and learnt. timed is 1 while every row has a time, in order.
streams = _table(
    "streams",
    "id",
    whole="n_rows n_events n_outliers n_regimes regime timed",
    real="created change_probability last_received last_at",
    words="key model settings",
)

OUTPUTS = (
    "mean",
    "median",
    "sd",
    "lower",
    "upper",
    "log_score",
    "weight",
    "outlier",
    "regime",
    "regime_probability",
    "change_probability",
    "n_regimes",
)
ROW = ("stream", "seq", "id", "time", "at", "received", "y", "x", "vector", *OUTPUTS)
_WHOLE = ("outlier", "regime", "n_regimes")

observations = _table(
    "observations",
    "stream seq",
    whole=" ".join(_WHOLE),
    real=" ".join(["at", "received", "y", *(name for name in OUTPUTS if name not in _WHOLE)]),
    words="id time x vector",
)

EVENT = ("stream", "number", "seq", "since", "kind", "regime", "previous", "received")

# seq is when it was known, since the first observation that belongs to it.
events = _table(
    "events",
    "stream number",
    whole="seq since regime previous",
    real="received acknowledged",
    words="kind acknowledged_by note",
)
segments = _table("segments", "stream start", whole="regime")
# seq: observations the model in it has learnt.
snapshots = _table("snapshots", "stream", whole="seq", real="made", binary="data")
regime_names = _table("regime_names", "stream regime", words="name note")
tokens = _table("tokens", "id", real="rate created revoked", words="name hash scopes")
webhooks = _table("webhooks", "id", real="created", words="prefix url secret kinds")
# due is null when there is nothing left to try.
deliveries = _table(
    "deliveries", "id", whole="webhook attempts", real="due delivered", words="body error"
)
