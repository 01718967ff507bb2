"""Tokens and webhooks. A token is shown once; the database keeps its SHA-256.

A token has 32 random bytes, so its plain hash cannot be searched backwards; salts and slow hashes
are for passwords that people choose.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from regimekit.core.exceptions import RegimekitError
from regimekit.server.storage.tables import deliveries, tokens, webhooks

RIGHTS = ("read", "write")


@dataclass(frozen=True)
class Token:
    """Who asks, and what they may: rights by prefix of the stream's key."""

    name: str
    scopes: tuple[tuple[str, str], ...]  # (right, prefix)
    rate: float = 0.0  # requests per second; 0 is unlimited
    id: int = 0
    revoked: float | None = None

    def may(self, right: str, key: str) -> bool:
        """Whether the token gives a right to a stream; who may write may read."""
        return any(key.startswith(prefix) for prefix in self.prefixes(right))

    def prefixes(self, right: str) -> list[str]:
        """Prefixes for which the token gives a right."""
        return [prefix for given, prefix in self.scopes if given in (right, "write")]


ANYONE = Token("local", (("write", ""),))


def digest(secret: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(secret.encode()).hexdigest()


def add_token(connection: Connection, name: str, scopes: list[tuple[str, str]], rate: float) -> str:
    """A new token; the return value is the only time it is seen."""
    if not name or not scopes:
        raise RegimekitError("A token needs a name and at least one of --read and --write.")
    secret = "hf_" + secrets.token_urlsafe(32)
    try:
        connection.execute(
            insert(tokens).values(
                name=name,
                hash=digest(secret),
                scopes=json.dumps(scopes),
                rate=rate,
                created=time.time(),
            )
        )
    except IntegrityError:
        raise RegimekitError(f"There is a token named {name!r}; choose another name.") from None
    return secret


def find_token(connection: Connection, secret: str) -> Token | None:
    """The token, if it is known and not revoked."""
    query = select(tokens).where(tokens.c.hash == digest(secret), tokens.c.revoked.is_(None))
    row = connection.execute(query).first()
    return None if row is None else _token(row)


def list_tokens(connection: Connection) -> list[Token]:
    """Every token, revoked ones too."""
    return [_token(row) for row in connection.execute(select(tokens).order_by(tokens.c.id))]


def revoke_token(connection: Connection, name: str) -> bool:
    """Take a token's rights away; whether there was one."""
    done = connection.execute(
        update(tokens)
        .where(tokens.c.name == name, tokens.c.revoked.is_(None))
        .values(revoked=time.time())
    )
    return done.rowcount == 1


def _token(row: Any) -> Token:
    scopes = tuple((right, prefix) for right, prefix in json.loads(row.scopes))
    return Token(row.name, scopes, row.rate, row.id, row.revoked)


def add_webhook(connection: Connection, prefix: str, url: str, kinds: list[str]) -> tuple[int, str]:
    """A new webhook: its number, and the secret that signs its messages."""
    secret = secrets.token_urlsafe(32)
    made = connection.execute(
        insert(webhooks)
        .values(prefix=prefix, url=url, secret=secret, kinds=json.dumps(kinds), created=time.time())
        .returning(webhooks.c.id)
    )
    return int(made.scalar_one()), secret


def list_webhooks(connection: Connection) -> list[dict[str, Any]]:
    """Webhooks without their secrets, each with the fate of its latest message."""
    found = []
    for row in connection.execute(select(webhooks).order_by(webhooks.c.id)).all():
        last = connection.execute(
            select(deliveries)
            .where(deliveries.c.webhook == row.id)
            .order_by(deliveries.c.id.desc())
            .limit(1)
        ).first()
        found.append(
            {
                "id": row.id,
                "prefix": row.prefix,
                "url": row.url,
                "kinds": json.loads(row.kinds),
                "created": row.created,
                "last_delivered": None if last is None else last.delivered,
                "last_attempts": 0 if last is None else last.attempts,
                "last_error": None if last is None else last.error,
            }
        )
    return found


def webhook_prefix(connection: Connection, number: int) -> str | None:
    """The prefix of a webhook, if there is one of this number."""
    found: str | None = connection.execute(
        select(webhooks.c.prefix).where(webhooks.c.id == number)
    ).scalar()
    return found


def remove_webhook(connection: Connection, number: int) -> None:
    """A webhook and its messages."""
    connection.execute(delete(deliveries).where(deliveries.c.webhook == number))
    connection.execute(delete(webhooks).where(webhooks.c.id == number))
