"""The tables as queries see them. `migrations` makes them; a test keeps the two in step."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()

streams = Table(
    "streams",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", Text, nullable=False, unique=True),
    Column("model", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("n_rows", BigInteger, nullable=False),  # the offset: what is stored and learnt
    Column("n_events", BigInteger, nullable=False),
    Column("n_outliers", BigInteger, nullable=False),
    Column("n_regimes", Integer, nullable=False),
    Column("regime", Integer, nullable=False),
    Column("change_probability", Float),
    Column("last_received", Float),
    Column("last_at", Float),
    Column("timed", Integer, nullable=False),  # 1 while every row has a time, in order
)

OUTPUTS = (
    "mean", "median", "sd", "lower", "upper", "log_score", "weight", "outlier", "regime",
    "regime_probability", "change_probability", "n_regimes",
)  # fmt: skip
ROW = ("stream", "seq", "id", "time", "at", "received", "y", "x", "vector", *OUTPUTS)
_WHOLE = {"stream", "seq", "outlier", "regime", "n_regimes"}
_WORDS = {"id", "time", "x", "vector"}

observations = Table(
    "observations",
    metadata,
    *(
        Column(
            name,
            BigInteger if name in _WHOLE else Text if name in _WORDS else Float,
            primary_key=name in ("stream", "seq"),
        )
        for name in ROW
    ),
)

EVENT = ("stream", "number", "seq", "since", "kind", "regime", "previous", "received")

events = Table(
    "events",
    metadata,
    Column("stream", BigInteger, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("seq", BigInteger, nullable=False),  # when it was known
    Column("since", BigInteger, nullable=False),  # the first observation that belongs to it
    Column("kind", Text, nullable=False),
    Column("regime", Integer, nullable=False),
    Column("previous", Integer, nullable=False),
    Column("received", Float, nullable=False),
    Column("acknowledged", Float),
    Column("acknowledged_by", Text),
    Column("note", Text),
)

segments = Table(
    "segments",
    metadata,
    Column("stream", BigInteger, primary_key=True),
    Column("start", BigInteger, primary_key=True),
    Column("regime", Integer, nullable=False),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("stream", BigInteger, primary_key=True),
    Column("seq", BigInteger, nullable=False),  # observations the model in it has learnt
    Column("data", LargeBinary, nullable=False),
    Column("made", Float, nullable=False),
)

regime_names = Table(
    "regime_names",
    metadata,
    Column("stream", BigInteger, primary_key=True),
    Column("regime", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("note", Text, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("hash", Text, nullable=False, unique=True),
    Column("scopes", Text, nullable=False),
    Column("rate", Float, nullable=False),
    Column("created", Float, nullable=False),
    Column("revoked", Float),
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("prefix", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),
    Column("kinds", Text, nullable=False),
    Column("created", Float, nullable=False),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("webhook", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due", Float),  # null when there is nothing left to try
    Column("delivered", Float),
    Column("error", Text),
)
