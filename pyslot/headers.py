"""HTTP headers that tell a client where it stands, and when to come again, in the words that clients act on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyslot.kinds import Limit, Slots, Window

if TYPE_CHECKING:
    from pyslot.decision import Status

Style: TypeAlias = Literal["ietf", "openai", "epoch"]
"""`ietf`: RateLimit-Policy and RateLimit, by draft-ietf-httpapi-ratelimit-headers-11 (May 2026).
`openai`: x-ratelimit-{limit,remaining,reset}-{requests,tokens}, with times such as "6m0s".
`epoch`: X-RateLimit-Limit, -Remaining and -Reset of the tightest window, with a Unix time, for clients that want that.
"""
DEFAULT: tuple[Style, ...] = ("ietf", "openai")

PATIENCE = 60.0
"""Seconds. The openai (to 2.x) and anthropic (to 0.x) SDKs disregard a longer Retry-After, and retry within seconds
(`_calculate_retry_timeout` in their `_base_client.py`); later ones sleep for as long as it says, or give up above 120.
All obey `x-should-retry: false`."""
AWAY = 1.0
"""Seconds after which to come again where no limit knows better: the server that counts can't be reached."""

_LARGEST = 999_999_999_999_999
"""The largest integer of a structured field (RFC 9651)."""


def headers(
    granted: bool,
    retry_after: float | None,
    statuses: Sequence[Status],
    styles: Sequence[Style] = DEFAULT,
    now: Callable[[], float] = time.time,
) -> dict[str, str]:
    """Where the limits stand, in each of the styles; on a refusal also when to come again."""
    told = policies(statuses)
    figures = [status for _, status in told]
    result: dict[str, str] = {}
    for style in styles:
        match style:
            case "ietf":
                result |= _ietf(told)
            case "openai":
                result |= _openai(figures)
            case "epoch":
                result |= _epoch(figures, now())
            case _:
                raise ValueError(f"a style of headers is 'ietf', 'openai' or 'epoch', not {style!r}")
    return result if granted else result | retry_headers(retry_after)


def retry_headers(retry_after: float | None) -> dict[str, str]:
    """When to come again: `retry_after` seconds from now, or never (None).

    Rounded up, so that a client who waits as told does not come too early. Retry-After has whole seconds; slots may be
    free much sooner, which retry-after-ms tells. Who would have to wait too long, or in vain, is told not to retry.
    """
    if retry_after is None:
        return {"x-should-retry": "false"}
    if retry_after <= 0:
        retry_after = AWAY
    seconds = str(ceil(retry_after))
    if retry_after > PATIENCE:
        return {"Retry-After": seconds, "x-should-retry": "false"}
    return {"Retry-After": seconds, "retry-after-ms": str(ceil(retry_after * 1000))}


def policies(statuses: Sequence[Status]) -> list[tuple[str, Status]]:
    """The limits to tell of, each with a name of its own, such as "key-requests".

    Limits that only observe, or count, are the operator's business.
    """
    told = [status for status in statuses if status.limit.limit is not None and status.limit.enforce]
    names = [public_name(status.limit) for status in told]
    often = Counter(names)
    names = [name + _window(status, "-") if often[name] > 1 else name for name, status in zip(names, told, strict=True)]
    seen: Counter[str] = Counter()
    for i, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[i] = f"{name}-{seen[name]}"
    return list(zip(names, told, strict=True))


def public_name(limit: Limit) -> str:
    """What a limit is called in public: of its subject only the kind before the colon, for the rest may be a secret."""
    kind, colon, _ = limit.subject.partition(":")
    what = "slots" if isinstance(limit, Slots) else limit.meter
    return _text(f"{kind}-{what}" if colon else what)


def _ietf(told: Sequence[tuple[str, Status]]) -> dict[str, str]:
    if not told:
        return {}
    quotas, limits = [], []
    for name, status in told:
        # Only three units are registered. Another is named all the same: without a name it would mean requests.
        unit = "concurrent-requests" if isinstance(status.limit, Slots) else _text(status.limit.meter)
        unit = "" if unit == "requests" else f';qu="{unit}"'
        quotas.append(f'"{name}";q={_integer(status.limit.limit)}{unit}{_window(status, ";w=")}')
        # Slots have no window: the end of a lease says nothing of when one will be free.
        window = f";t={ceil(status.reset_after)}" if isinstance(status.limit, Window) else ""
        limits.append(f'"{name}";r={_integer(status.remaining)}{window}')
    return {"RateLimit-Policy": ", ".join(quotas), "RateLimit": ", ".join(limits)}


def _openai(statuses: Sequence[Status]) -> dict[str, str]:
    result = {}
    for meter in ("requests", "tokens"):
        status = _tightest([status for status in statuses if getattr(status.limit, "meter", None) == meter])
        if status:
            result[f"x-ratelimit-limit-{meter}"] = str(status.limit.limit)
            result[f"x-ratelimit-remaining-{meter}"] = str(status.remaining)
            result[f"x-ratelimit-reset-{meter}"] = _duration(status.reset_after)
    return result


def _epoch(statuses: Sequence[Status], now: float) -> dict[str, str]:
    status = _tightest([status for status in statuses if isinstance(status.limit, Window)])
    if not status:
        return {}
    return {
        "X-RateLimit-Limit": str(status.limit.limit),
        "X-RateLimit-Remaining": str(status.remaining),
        "X-RateLimit-Reset": str(ceil(now + status.reset_after)),
    }


def _tightest(statuses: Sequence[Status]) -> Status | None:
    return min(statuses, key=lambda status: (status.remaining or 0, -status.reset_after), default=None)


def _duration(seconds: float) -> str:
    """As Go writes it: 350ms, 8.64s, 6m0s, 1h0m0s."""
    ms = ceil(seconds * 1000)
    if ms < 1000:
        return f"{ms}ms"
    minutes, ms = divmod(ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    rest = f"{ms / 1000:.3f}".rstrip("0").rstrip(".")
    return f"{f'{hours}h' if hours else ''}{f'{minutes}m' if hours or minutes else ''}{rest}s"


def _text(text: str) -> str:
    # A structured field's string holds printable ASCII; quote and backslash would need escapes.
    return "".join(c if " " <= c <= "~" and c not in '"\\' else "_" for c in text)


def _integer(number: int | None) -> int:
    return min(number or 0, _LARGEST)


def _window(status: Status, before: str) -> str:
    return f"{before}{ceil(status.limit.per_ms / 1000)}" if isinstance(status.limit, Window) else ""
