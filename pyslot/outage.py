"""What a limiter decides by itself while the server can't be asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor
from typing import Literal, TypeAlias

from pyslot import calls
from pyslot.calls import Answer, Parts
from pyslot.errors import UsageError
from pyslot.model import Model


@dataclass(frozen=True, slots=True)
class Local:
    """Decide in this process, within its share of each limit: `max(1, floor(limit * share))`."""

    share: float
    """This process's part of every limit, above 0 and at most 1; usually 1 / replicas."""

    def __post_init__(self) -> None:
        if type(self.share) not in (int, float) or not 0 < self.share <= 1:
            raise UsageError(f"share must be above 0 and at most 1, such as 1/replicas, not {self.share!r}")


Policy: TypeAlias = Literal["raise", "closed", "open"] | Local
"""`raise` StoreUnavailable, refuse (`closed`), admit (`open`), or decide locally."""


class Fallback:
    """Admission without a server, by an outage policy."""

    def __init__(self, policy: Policy, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._model = Model(lambda: int(clock() * 1000))

    @classmethod
    def make(cls, policy: Policy, clock: Callable[[], float]) -> Fallback | None:
        """The fallback of a policy; none where trouble is to be raised."""
        if not isinstance(policy, Local) and policy not in ("raise", "closed", "open"):
            raise UsageError(f"on_outage must be 'raise', 'closed', 'open' or Local(share=...), not {policy!r}")
        return None if policy == "raise" else cls(policy, clock)

    def admit(self, parts: Parts, id: bytes) -> Answer:
        """What the server would have said, as far as can be told here."""
        if not isinstance(self._policy, Local):
            record = [int(self._policy == "open")]
            for _ in parts:
                record += (calls.TAKES, 0, 0, 0)
            return Answer(parts, record)
        call = calls.admit(parts, id)
        head = list(call.head)
        for k, part in enumerate(parts):
            if part.limit.limit is not None and part.limit.enforce and part.limit.limit > 0:
                head[3 + 3 * k] = b"%d" % max(1, floor(part.limit.limit * self._policy.share))
        return Answer(parts, self._model.run(call.script.name, call.keys, head + list(call.permits)))

    def finish(self, parts: Parts, id: bytes) -> None:
        """A permit has ended: its share is free again."""
        if isinstance(self._policy, Local):
            call = calls.finish(parts, id, {})
            self._model.run(call.script.name, call.keys, call.head + call.permits)
