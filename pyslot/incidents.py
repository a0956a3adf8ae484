"""What should not happen and does: counted, logged without flooding the log, told to hooks.

Logs name limits by their keys, never by their subjects: with `hash_names` those are secrets.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from pyslot.hooks import Guarded
from pyslot.kinds import Slots

if TYPE_CHECKING:
    from pyslot.parts import Part
    from pyslot.permit import BasePermit

log = logging.getLogger("pyslot")

LEAKING = 10_000
"""Limits remembered as leaking, at most; each is logged once."""


class Incidents:
    """The incidents of one limiter."""

    def __init__(self, hooks: Guarded | None) -> None:
        self._hooks = hooks
        self._leaking: set[bytes] = set()
        self.counts: Counter[str] = Counter()
        """`leaked` leases, `abandoned` permits, `lost` and `rejoined` slots, `outages`, `dropped` clean-up calls."""

    def leaked(self, part: Part, count: int) -> None:
        """An admission found leases that had ended unreleased, and dropped them."""
        self.counts["leaked"] += count
        key = part.wire.key
        # Once per limit: where permits leak, every admission may find some.
        if key not in self._leaking and len(self._leaking) < LEAKING:
            self._leaking.add(key)
            log.warning("%s: %d leases ended unreleased: a holder died, or permits are not finished", _text(key), count)
        if self._hooks:
            self._hooks.leak(cast(Slots, part.limit), count)

    def abandoned(self, id: str, key: bytes) -> None:
        """Nobody references a permit any more that still held a slot."""
        self.counts["abandoned"] += 1
        log.warning("%s: permit %s was dropped without finish(); its lease runs out", _text(key), id)
        with suppress(ResourceWarning):  # where warnings are errors it must not end the renewals of others
            warnings.warn(f"permit {id} was dropped without finish()", ResourceWarning, stacklevel=2)

    def lost(self, part: Part, permits: Sequence[BasePermit]) -> None:
        """Slots of permits were gone when their leases were to be renewed."""
        self.counts["lost"] += len(permits)
        log.warning("%s: %d slots were lost before their leases were renewed", _text(part.wire.key), len(permits))
        if self._hooks:
            self._hooks.lease_lost(cast(Slots, part.limit), permits)

    def away(self, where: object, reason: object) -> None:
        """The server, or a node of a cluster, can't be asked: said once, when that begins."""
        self.counts["outages"] += 1
        log.warning("%s is away, the outage policy decides: %s", where or "the server", reason)
        if self._hooks:
            self._hooks.outage(True)

    def back(self, where: object, seconds: float) -> None:
        log.warning("%s is back after %.1f s", where or "the server", seconds)
        if self._hooks:
            self._hooks.outage(False)

    def dropped(self, count: int, reason: object) -> None:
        """Clean-up calls were given up. The first is logged, then one of every thousand."""
        before = self.counts["dropped"]
        self.counts["dropped"] += count
        if not before or before // 1000 < self.counts["dropped"] // 1000:
            log.warning("%d clean-up calls were given up, leases will end them: %s", self.counts["dropped"], reason)


def _text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")
