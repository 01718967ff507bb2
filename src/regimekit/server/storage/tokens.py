"""Repository of access tokens. A token is shown once; the database stores its SHA-256 hash.

A token has 32 random bytes, so a plain hash cannot be inverted by search. Salts and slow hashes
are needed for passwords that people choose.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from regimekit.core.exceptions import RegimekitError
from regimekit.server.storage.schema import tokens


@dataclass(frozen=True)
class Token:
    """A caller and its permissions, given by prefixes of stream keys.

    Attributes:
        name: name of the token.
        scopes: pairs (permission, prefix); the permission is "read" or "write".
        rate: requests per second; 0 means no limit.
        id: primary key, 0 for the local caller without a token.
        revoked: time of revocation in seconds since 1970, or None.
    """

    name: str
    scopes: tuple[tuple[str, str], ...]
    rate: float = 0.0
    id: int = 0
    revoked: float | None = None

    def allows(self, permission: str, key: str) -> bool:
        """Return whether the token permits "read" or "write" on a stream."""
        return any(key.startswith(prefix) for prefix in self.prefixes(permission))

    def prefixes(self, permission: str) -> list[str]:
        """Return the prefixes with a permission; "write" includes "read"."""
        return [prefix for granted, prefix in self.scopes if granted in (permission, "write")]


LOCAL = Token("local", (("write", ""),))


def hash_secret(secret: str) -> str:
    """Return the hexadecimal SHA-256 hash that is stored for a token."""
    return hashlib.sha256(secret.encode()).hexdigest()


def add(connection: Connection, name: str, scopes: list[tuple[str, str]], rate: float) -> str:
    """Create a token.

    Args:
        connection: a write transaction.
        name: a unique name.
        scopes: pairs (permission, prefix).
        rate: requests per second; 0 means no limit.

    Returns:
        The secret. It cannot be retrieved again.

    Raises:
        RegimekitError: if the name or the scopes are empty, or the name is taken.
    """
    if not name or not scopes:
        raise RegimekitError("A token needs a name and at least one of --read and --write.")
    secret = "hf_" + secrets.token_urlsafe(32)
    row = {"name": name, "hash": hash_secret(secret), "scopes": json.dumps(scopes)}
    try:
        connection.execute(insert(tokens).values(rate=rate, created=time.time(), **row))
    except IntegrityError:
        raise RegimekitError(f"The token {name!r} exists; choose another name.") from None
    return secret


def find(connection: Connection, secret: str) -> Token | None:
    """Return the token of a secret, or None if it is unknown or revoked."""
    query = select(tokens).where(tokens.c.hash == hash_secret(secret), tokens.c.revoked.is_(None))
    row = connection.execute(query).first()
    return None if row is None else _token(row)


def list_all(connection: Connection) -> list[Token]:
    """Return every token, including revoked ones, in order of creation."""
    return [_token(row) for row in connection.execute(select(tokens).order_by(tokens.c.id))]


def revoke(connection: Connection, name: str) -> bool:
    """Revoke a token; return whether an active token of that name existed."""
    active = (tokens.c.name == name) & tokens.c.revoked.is_(None)
    done = connection.execute(update(tokens).where(active).values(revoked=time.time()))
    return done.rowcount == 1


def _token(row: Any) -> Token:
    scopes = tuple((permission, prefix) for permission, prefix in json.loads(row.scopes))
    return Token(row.name, scopes, row.rate, row.id, row.revoked)
