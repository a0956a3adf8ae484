"""Detached permits as bytes: what another process needs to renew, settle and finish one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgpack

from pyslot.errors import UsageError
from pyslot.keys import Naming
from pyslot.kinds import Limit, Slots, Window

FORMAT = 1


def pack(naming: Naming, id: str, held: float, limits: Iterable[tuple[Limit, int | None]]) -> bytes:
    """A token: the permit's id, the seconds it has been held, its limits and the figures already settled."""
    rows = [[*_fields(limit), units] for limit, units in limits]
    packed: bytes = msgpack.packb([FORMAT, naming.prefix, naming.hash_names, id, held, rows])
    return packed


def unpack(naming: Naming, data: bytes) -> tuple[str, float, list[tuple[Limit, int | None]]]:
    """Read a token of the same naming. Tokens are trusted input: whoever can write one can end permits."""
    try:
        version, prefix, hash_names, id, held, rows = msgpack.unpackb(data)
        limits = [(_limit(fields), units) for *fields, units in rows]
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise UsageError(f"this is not the token of a detached permit: {error}") from error
    if version != FORMAT:
        raise UsageError(f"this token has format {version}, this release reads format {FORMAT}")
    if (prefix, hash_names) != (naming.prefix, naming.hash_names):
        raise UsageError(
            f"the permit was detached under prefix={prefix!r}, hash_names={hash_names}, "
            f"this limiter has prefix={naming.prefix!r}, hash_names={naming.hash_names}"
        )
    return id, held, limits


def _fields(limit: Limit) -> list[Any]:
    if isinstance(limit, Slots):
        times = [limit.lease_ms / 1000, limit.max_hold_seconds]
        return ["s", limit.subject, limit.limit, *times, limit.tag, limit.enforce]
    return ["w", limit.subject, limit.meter, limit.limit, limit.per_ms / 1000, limit.tag, limit.enforce]


def _limit(fields: list[Any]) -> Limit:
    kind, *rest = fields
    return Slots(*rest) if kind == "s" else Window(*rest)
