"""Everything pyslot raises, under one root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyslot.decision import Decision


class PyslotError(Exception):
    """The root of every error pyslot raises itself."""


class UsageError(PyslotError):
    """The library is set up or called in a way that cannot work; the text says what would."""


class InvalidLimit(PyslotError, ValueError):
    """A limit, amount or permit id that can't be right. Raised before anything is sent."""


class LimitExceeded(PyslotError):
    """A limit refused. `decision` says which one, what remains and when to come back."""

    def __init__(self, decision: Decision[Any]) -> None:
        super().__init__(decision)
        self.decision = decision

    def __str__(self) -> str:
        return self.decision.explain()


class StoreError(PyslotError):
    """The server answered and declined: wrong type, out of memory, no permission, a bug."""


class StoreUnavailable(PyslotError):
    """No answer that counts: connection refused or lost, time-out, fail-over, still loading.

    Whether the call took effect is unknown; whoever sent it undoes it by permit id.
    """


class StoreBusy(StoreUnavailable):
    """No connection was free within the deadline: nothing was sent, and nothing is wrong with the server."""


class StoreSkipped(StoreUnavailable):
    """The server was not asked, since it did not answer a moment ago: nothing was sent."""
