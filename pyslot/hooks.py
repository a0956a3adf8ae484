"""What a limiter tells of its doings: to logs, metrics and tests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyslot.decision import Decision, Outcome
    from pyslot.kinds import Slots
    from pyslot.permit import BasePermit

log = logging.getLogger("pyslot")


class Hooks:
    """Override what you want to hear of; the rest does nothing. Pass it as `Limiter(..., hooks=[MyHooks()])`.

    Each is called where the thing happens, in that thread or task, between two steps of a request: be quick, and don't
    block. What a hook raises is logged and goes no further.
    """

    def decision(self, decision: Decision[Any], seconds: float) -> None:
        """A request was granted or refused, `seconds` after it was asked for; waiting for room counts."""

    def wait(self, decision: Decision[Any], seconds: float) -> None:
        """A caller who would wait for room was refused, and asks again in `seconds`."""

    def settle(self, permit: BasePermit, outcome: Outcome, seconds: float) -> None:
        """A permit was finished, `seconds` after it was granted, and the server knows.

        `permit.parts` tells what each limit was charged, `permit.figures` the real figures by the window's key.
        """

    def lease_lost(self, limit: Slots, permits: Sequence[BasePermit]) -> None:
        """Slots of permits held here were gone when their leases were to be renewed."""

    def leak(self, limit: Slots, leases: int) -> None:
        """So many leases of a gauge, whoever had them, ended without a release: their holders died or forgot them."""

    def outage(self, away: bool) -> None:
        """The server could no longer be reached, or can be reached again."""

    def batch(self, permits: int) -> None:
        """An `AsyncLimiter` sent one script call for so many permits: what waits for the server travels together."""


class Guarded(Hooks):
    """Several hooks as one that never raises."""

    def __init__(self, hooks: Iterable[Hooks]) -> None:
        for name in ("decision", "wait", "settle", "lease_lost", "leak", "outage", "batch"):
            # Only what is overridden is called at all.
            heard = [getattr(each, name) for each in hooks if getattr(type(each), name) is not getattr(Hooks, name)]
            setattr(self, name, _guard(name, heard))


def guarded(hooks: Iterable[Hooks]) -> Guarded | None:
    """What a limiter calls; None where nobody listens."""
    given = tuple(hooks)
    return Guarded(given) if given else None


def _guard(name: str, heard: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def call(*args: object) -> None:
        for each in heard:
            try:
                each(*args)
            except Exception:
                log.exception("the hook %s of %r failed", name, getattr(each, "__self__", each))

    return call
