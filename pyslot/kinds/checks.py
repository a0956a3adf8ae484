"""What the fields of every kind of limit must be. Errors name the value and what would be right."""

from __future__ import annotations

import math
from datetime import timedelta

from pyslot.errors import InvalidLimit

MOST = 2**53 - 1
"""The largest amount: beyond it a Lua number is no longer exact."""


def check_name(what: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidLimit(f"{what} must be a non-empty string, not {value!r}")


def check_amount(what: str, value: object, *, none: str = "") -> None:
    """Whole, not a bool, 0 to 2^53-1; None where `none` says what that means."""
    if value is None and none:
        return
    if type(value) is not int or not 0 <= value <= MOST:
        hint = f", or None for {none}" if none else ""
        raise InvalidLimit(f"{what} must be a whole number from 0 to 2^53-1{hint}, not {value!r}")


def check_bool(what: str, value: object) -> None:
    if type(value) is not bool:
        raise InvalidLimit(f"{what} must be True or False, not {value!r}")


def milliseconds(what: str, value: float | timedelta) -> int:
    """A duration in seconds, or a timedelta, as at least one whole millisecond."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if type(seconds) not in (int, float) or not math.isfinite(seconds) or not 0.0005 < seconds <= MOST / 1000:
        raise InvalidLimit(f"{what} must be a time of at least 0.001 seconds, or a timedelta, not {value!r}")
    return round(seconds * 1000)
