"""HTTP headers that tell a client where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyslot.decision import Status


def headers(granted: bool, retry_after: float | None, statuses: Sequence[Status]) -> dict[str, str]:
    """RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers) for each limit, Retry-After on a refusal.

    Seconds are rounded up: a client that waits as told must not come too early.
    """
    limited = [(_name(status), status) for status in statuses if status.limit.limit is not None]
    result = {}
    if limited:
        result["RateLimit-Policy"] = ", ".join(
            f'"{name}";q={status.limit.limit}{_window(status)}' for name, status in limited
        )
        result["RateLimit"] = ", ".join(
            f'"{name}";r={status.remaining};t={ceil(status.reset_after)}' for name, status in limited
        )
    if not granted and retry_after is not None:
        result["Retry-After"] = str(ceil(retry_after))
    return result


def _name(status: Status) -> str:
    # The kind of subject only ("key", "team"): the rest of its name may be a secret.
    text = f"{status.limit.subject.partition(':')[0]}-{getattr(status.limit, 'meter', 'slots')}"
    # A structured field's string holds printable ASCII without quote and backslash.
    return "".join(c if " " <= c <= "~" and c not in '"\\' else "_" for c in text)


def _window(status: Status) -> str:
    per_ms = getattr(status.limit, "per_ms", None)
    return f";w={ceil(per_ms / 1000)}" if per_ms else ""
