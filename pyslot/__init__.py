"""Shared limits for many processes, on the Redis or Valkey server they already run."""

from pyslot.aio import AsyncLimiter
from pyslot.decision import Decision, Outcome, Status
from pyslot.errors import (
    InvalidLimit,
    LimitExceeded,
    PyslotError,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from pyslot.kinds import Slots, Window
from pyslot.limiter import Limiter
from pyslot.permit import AsyncPermit, Permit
from pyslot.policy import Local

__all__ = [
    "AsyncLimiter",
    "AsyncPermit",
    "Decision",
    "InvalidLimit",
    "LimitExceeded",
    "Limiter",
    "Local",
    "Outcome",
    "Permit",
    "PyslotError",
    "Slots",
    "Status",
    "StoreError",
    "StoreUnavailable",
    "UsageError",
    "Window",
]
