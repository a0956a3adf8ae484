"""Detached permits as bytes: what another process needs to renew, settle and finish one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgpack

from pyslot.errors import UsageError
from pyslot.keys import Naming
from pyslot.kinds import Limit, Slots, Window
from pyslot.policy import Local

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
    policy = limit.on_outage.share if isinstance(limit.on_outage, Local) else limit.on_outage
    rules = [limit.tag, limit.enforce, policy]
    if isinstance(limit, Slots):
        return ["s", limit.subject, limit.limit, limit.lease_ms / 1000, limit.max_hold_seconds, *rules]
    return ["w", limit.subject, limit.meter, limit.limit, limit.per_ms / 1000, *rules]


def _limit(fields: list[Any]) -> Limit:
    kind, *rest, policy = fields
    fields = [*rest, Local(policy) if isinstance(policy, (int, float)) else policy]
    return Slots(*fields) if kind == "s" else Window(*fields)
