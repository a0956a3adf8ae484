"""The end of a permit, and what needs none: the half of the flows that takes nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

from pyslot import calls, token
from pyslot.calls import Parts
from pyslot.cleanup import Why
from pyslot.decision import Outcome, Status, outcome, status_of
from pyslot.errors import InvalidLimit, StoreError, StoreUnavailable, UsageError
from pyslot.hooks import Guarded
from pyslot.ids import check_id, encode_id
from pyslot.keys import Naming
from pyslot.kinds import Asked, Slots
from pyslot.lines import Bell, Lines, Listen
from pyslot.loader import Call
from pyslot.outage import Outage
from pyslot.permit import BasePermit
from pyslot.policy import Local
from pyslot.renewer import Sleep, Upkeep

T = TypeVar("T")
P = TypeVar("P", bound=BasePermit)
Flow: TypeAlias = Generator[Call | Sleep | Listen, Sequence[int], T]


_UNKNOWN = Outcome(released=False, settled=False, late=False)
"""The end of a permit that the server has not answered."""
_SLOT = (Outcome(released=False, settled=False, late=True), Outcome(released=True, settled=False, late=False))
"""The end of a permit that had one slot, by what `finish` replies for it: 0 lost by then, 1 held."""


class Ends(Generic[P]):
    """What becomes of permits, and a look at limits."""

    def __init__(
        self,
        naming: Naming,
        upkeep: Upkeep,
        make_permit: Callable[[bytes, Parts], P],
        *,
        clock: Callable[[], float],
        group: bool,
        outage: Outage,
        hooks: Guarded | None,
        make_bell: Callable[[], Bell],
    ) -> None:
        self.naming = naming
        self.upkeep = upkeep
        self._make_permit = make_permit
        self._clock = clock
        self._group = group
        self._outage = outage
        naming.local = naming.local or isinstance(outage.policy, Local)
        self._hooks = hooks
        self._make_bell = make_bell
        self._lines = Lines(make_bell)

    # The usual end, in a straight line: one call, with nothing in its way

    def ending(self, permit: BasePermit) -> Call | None:
        """Take a permit out of the hands of this limiter: the call that ends it. None where there is more to it."""
        id, parts, upkeep = permit.wire_id, permit.parts, self.upkeep
        if self._outage.troubled or id in upkeep.backlog.queues or 0.0 < permit.started < upkeep.forked:
            return None
        if (len(parts) != 1 and (self._group or not parts)) or not permit.close():
            return None
        upkeep.let_go(permit, self._clock())
        if self.naming.local:
            self._settled(permit)
        return calls.finish(parts, id, permit.figures)

    def ended(self, permit: BasePermit, reply: Sequence[int]) -> Outcome:
        """What the call has found."""
        parts = permit.parts
        if len(parts) == 1 and parts[0].figure is None:
            self._lines.freed(parts[0].wire.key)
            ended = _SLOT[reply[1]]
        else:
            ended = _outcome(self._found(parts, reply))
        if self._hooks:
            self._hooks.settle(permit, ended, self._clock() - permit.started)
        return ended

    def unended(self, permit: BasePermit, error: BaseException) -> Outcome | None:
        """The call met an error, and is sent again later: None where the error is to be raised nevertheless."""
        return None if self._unsent(permit, (permit.parts,), error) else _UNKNOWN

    # The end of a permit

    def finish(self, permit: BasePermit) -> Flow[Outcome]:
        """Give slots back and settle charges; what can't be sent now is sent later, and the error raised."""
        if self.foreign(permit):
            raise UsageError(
                f"permit {permit.id} belongs to the process that forked this one: "
                "it finishes there, or is detached there and adopted here"
            )
        groups = self._end(permit)
        if permit.wire_id in self.upkeep.backlog.queues and self.upkeep.backlog.waiting(permit.wire_id, Why.JOIN):
            return self._unheard(permit, groups)
        found: set[tuple[bool, int]] = set()
        for at, group in enumerate(groups):
            try:
                if self._outage.troubled:
                    self._outage.check(group[0])
                reply = yield calls.finish(group, permit.wire_id, permit.figures)
            except BaseException as error:
                if self._unsent(permit, groups[at:], error):
                    raise
                return _UNKNOWN
            found |= self._found(group, reply)
        ended = _outcome(found) if groups else outcome(False, False, len(permit.parts) > 0)
        if self._hooks and groups:
            self._hooks.settle(permit, ended, self._clock() - permit.started)
        return ended

    def _found(self, group: Parts, reply: Sequence[int]) -> set[tuple[bool, int]]:
        """What a call that ends a permit has found, as (is it slots, 1 held or 0 lost)."""
        for part in group:
            if part.figure is None:
                self._lines.freed(part.wire.key)
        return {(part.figure is None, held) for part, held in zip(group, reply[1:], strict=True)}

    def _unsent(self, permit: BasePermit, groups: Sequence[Parts], error: BaseException) -> bool:
        """The end of a permit met an error in the first of these groups; true where the caller is to see it."""
        # What the server declined once it would decline again.
        self._later(permit, groups[isinstance(error, StoreError) :])
        self._failed(groups[0], error)
        return not isinstance(error, StoreUnavailable) or self._outage.raises(permit.parts)

    def _unheard(self, permit: BasePermit, groups: Sequence[Parts]) -> Outcome:
        """The end of a permit granted without the server, which has not heard of it and will be told it all."""
        self._later(permit, groups)
        kinds = {part.figure is None for part in permit.parts}
        return Outcome(True in kinds and bool(groups), False in kinds and bool(groups), not groups)

    def _end(self, permit: BasePermit) -> Sequence[Parts]:
        """Take a permit out of the hands of this limiter; returns what is to be finished, nothing the second time."""
        if not permit.close():
            return ()
        self.upkeep.let_go(permit, self._clock())
        if self.naming.local:
            self._settled(permit)
        return self._groups(permit.parts)

    def _settled(self, permit: BasePermit) -> None:
        for part in permit.parts:
            if (units := permit.figures.get(part.wire.key)) is not None:
                self._outage.settled(part, units)

    def finish_later(self, permit: BasePermit) -> None:
        """Finish in the background: for a task that is being cancelled and must not wait for anything."""
        if not self.foreign(permit):
            self._later(permit, self._end(permit))

    def _later(self, permit: BasePermit, groups: Sequence[Parts]) -> None:
        for group in groups:
            call = calls.finish(group, permit.wire_id, permit.figures)
            self.upkeep.later(permit.wire_id, Why.END, group, call)

    def foreign(self, permit: BasePermit) -> bool:
        """True for a permit of the process that forked this one: it is that process's to finish."""
        return 0.0 < permit.started < self.upkeep.forked

    def handle(self, id: str, asked: Iterable[Asked]) -> P:
        """A permit by its id alone, to settle and finish it from anywhere. It is not renewed here."""
        parts = calls.parts_of(asked, self.naming, charged=False)
        return self._make_permit(encode_id(check_id(id)), parts)

    def detach(self, permit: BasePermit) -> bytes:
        """Let go of a permit; the token says all another process needs."""
        if self.foreign(permit):
            raise UsageError(f"permit {permit.id} belongs to the process that forked this one: detach it there")
        now = self._clock()
        held = now - permit.started if permit.started else 0.0  # since when a handle is held is not known
        if permit.close():
            self.upkeep.let_go(permit, now)
        limits = [(part.limit, permit.figures.get(part.wire.key)) for part in permit.parts]
        return token.pack(self.naming, permit.id, held, limits)

    def adopt(self, data: bytes) -> P:
        """Take over a permit that another limiter let go: from now on it is renewed and finished here."""
        id, held, limits = token.unpack(self.naming, data)
        permit = self.handle(id, [limit for limit, _ in limits])
        permit.figures.update({limit.wire(self.naming).key: units for limit, units in limits if units is not None})
        now = self._clock()
        self.upkeep.hold(permit, now - held, now)
        return permit

    # Looking and forgetting

    def peek(self, asked: Iterable[Asked]) -> Flow[tuple[Status, ...]]:
        parts = calls.parts_of(asked, self.naming, charged=False)
        figures: dict[bytes, tuple[int, int]] = {}
        for group in self._groups(parts):
            reply = yield from self._ask(group, calls.peek(group))
            figures |= zip((part.wire.key for part in group), zip(reply[::2], reply[1::2], strict=True), strict=True)
        statuses = []
        for limit, units, wire, _ in parts:
            used, reset = figures[wire.key]
            statuses.append(status_of(limit, used, reset, limit.limit is not None and used + units > limit.limit))
        return tuple(statuses)

    def count(self, slots: Slots) -> Flow[int]:
        parts = calls.parts_of((slots,), self.naming, charged=False)
        if not isinstance(slots, Slots):
            raise InvalidLimit(f"only slots can be counted, peek shows a window: {slots!r}")
        return (yield from self._ask(parts, calls.count(parts)))[0]

    def reset(self, asked: Iterable[Asked]) -> Flow[None]:
        for group in self._groups(calls.parts_of(asked, self.naming, charged=False)):
            yield from self._ask(group, calls.reset(group))

    # The server, or what stands in its way

    def _ask(self, parts: Parts, call: Call) -> Flow[Sequence[int]]:
        """A call that takes nothing."""
        try:
            self._check(parts)
            return (yield call)
        except StoreUnavailable as error:
            self._failed(parts, error)
            raise

    def _check(self, parts: Parts) -> None:
        if self._outage.troubled:
            self._outage.check(parts[0])

    def _failed(self, parts: Parts, error: BaseException) -> None:
        if isinstance(error, StoreUnavailable) and self._outage.failed(parts[0], error):
            self.upkeep.wake()

    def _groups(self, parts: Parts) -> Sequence[Parts]:
        if self._group and len(parts) > 1:
            return calls.grouped(parts)
        return (parts,) if parts else ()


def _outcome(found: set[tuple[bool, int]]) -> Outcome:
    lost_slots, lost_charges = (True, 0) in found, (False, 0) in found
    return outcome(
        (True, 1) in found and not lost_slots, (False, 1) in found and not lost_charges, lost_slots or lost_charges
    )
