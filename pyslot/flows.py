"""What happens in one request, without doing any of it: generators that yield calls and sleeps and get replies.

One logic for both colours, after the habit of sans-I/O libraries: `Limiter` drives these flows by blocking,
`AsyncLimiter` by awaiting.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from random import uniform
from typing import Generic, TypeAlias, TypeVar

from pyslot import calls, token
from pyslot.calls import Answer, Part, Parts
from pyslot.decision import Decision, Outcome, Status, status_of
from pyslot.errors import InvalidLimit, PyslotError, StoreError, StoreUnavailable, UsageError
from pyslot.hooks import Guarded
from pyslot.ids import check_id, encode_id, new_id
from pyslot.keys import Naming
from pyslot.kinds import Asked, Slots
from pyslot.lines import Bell, Lines, Listen, Place
from pyslot.loader import Call
from pyslot.outage import Fallback
from pyslot.permit import BasePermit, OnError
from pyslot.renewer import Sleep, Upkeep

T = TypeVar("T")
P = TypeVar("P", bound=BasePermit)
Flow: TypeAlias = Generator[Call | Sleep | Listen, Sequence[int], T]

LONGEST_SLEEP = 1.0
"""Seconds a waiter sleeps at most before it asks again: room may come early, from a refund or a settled estimate."""
SHORTEST_SLEEP = 0.001
REMEMBERED = 10_000
"""Recent refusals kept for the look, at most."""


class Flows(Generic[P]):
    """The flows of one limiter, and what it remembers between them."""

    def __init__(
        self,
        naming: Naming,
        upkeep: Upkeep,
        make_permit: Callable[[str, bytes, Parts], P],
        *,
        clock: Callable[[], float],
        group: bool,
        fallback: Fallback | None,
        hooks: Guarded | None,
        make_bell: Callable[[], Bell],
    ) -> None:
        self.naming = naming
        self.upkeep = upkeep
        self._make_permit = make_permit
        self._clock = clock
        self._group = group
        self._fallback = fallback
        self._hooks = hooks
        self._lines = Lines(make_bell)
        self._refused_until: dict[bytes, float] = {}

    # Admission

    def acquire(self, asked: Iterable[Asked], id: str | None, wait: float | None) -> Flow[Decision[P]]:
        """Take all limits for one permit or none, waiting up to `wait` seconds for room."""
        parts = calls.parts_of(asked, self.naming)
        fresh = id is None  # a caller's own id may be held already: that is for the server to say, at once
        id = check_id(id) if id is not None else new_id()
        wire_id = encode_id(id)
        end = self._clock() + _check_wait(wait) if wait is not None else None
        began = self._clock() if self._hooks else 0.0
        place = self._behind(parts) if wait and fresh else None
        try:
            while True:
                if place and end:
                    yield from self._stand(place, end)
                degraded = False
                try:
                    answers = yield from self._admit(parts, id, wire_id)
                except StoreUnavailable:
                    if place:
                        place.disperse()
                    if self._fallback is None:
                        raise
                    answers, degraded = [self._fallback.admit(parts, wire_id)], True
                if not answers or answers[-1].record[0]:
                    permit = self._make_permit(id, wire_id, parts)
                    self._hold(permit, self._clock())
                    return self._decided(Decision(permit, answers, self._slot_wait, degraded=degraded), began)
                refusal: Decision[P] = Decision(None, answers, self._slot_wait, degraded=degraded)
                if end is None or refusal.retry_after is None or (left := end - self._clock()) <= 0:
                    return self._decided(refusal, began)
                place = self._line_up(refusal, place)
                yield from self._pause(refusal, refusal.retry_after, left, place)
        finally:
            if place:
                place.leave()

    def _pause(self, refusal: Decision[P], retry_after: float, left: float, place: Place | None) -> Flow[None]:
        """Wait as long as told; a caller who is not the first in line has that before it."""
        pause = max(retry_after, SHORTEST_SLEEP) * uniform(1.0, 1.2)  # noqa: S311  # no secret
        pause = min(pause, LONGEST_SLEEP, left)
        if self._hooks:
            self._hooks.wait(refusal, pause)
        if not place:
            yield Sleep(pause)
        elif place.turn:
            yield Listen(pause, place.bell)

    def _behind(self, parts: Parts) -> Place | None:
        """Stand behind those who wait already for one of these gauges."""
        key = next((part.wire.key for part in parts if self._lines.forms(part.wire.key)), None)
        return self._lines.join(key) if key else None

    def _stand(self, place: Place, end: float) -> Flow[None]:
        """Stand in line until it is this caller's turn, or its time has run out."""
        place.bell.clear()  # before looking: what rings from now on is heard
        while not place.turn and (left := end - self._clock()) > 0:
            yield Listen(left, place.bell)
            place.bell.clear()

    def _line_up(self, refusal: Decision[P], place: Place | None) -> Place | None:
        """Stand in line for the first gauge that refused; in none where a window did, whose end is known to all."""
        full = refusal.refused_by
        slots = all(isinstance(limit, Slots) for limit in full)
        key = full[0].wire(self.naming).key if full and slots and not refusal.degraded else None
        if place and place.key != key:
            place.leave()
            place = None
        return self._lines.join(key) if key and not place else place

    def charge(self, asked: Iterable[Asked]) -> Flow[Decision[P]]:
        """Charge all windows or none, with nothing to finish."""
        parts = calls.parts_of(asked, self.naming)
        for part in parts:
            if isinstance(part.limit, Slots):
                raise InvalidLimit(f"only windows can be charged, a slot is held by a permit: {part.limit!r}")
        id = new_id()
        began = self._clock() if self._hooks else 0.0
        answers = yield from self._admit(parts, id, encode_id(id))
        return self._decided(Decision(None, answers, self._slot_wait), began)

    def _decided(self, decision: Decision[P], began: float) -> Decision[P]:
        if self._hooks:
            self._hooks.decision(decision, self._clock() - began)
        return decision

    def _admit(self, parts: Parts, id: str, wire_id: bytes) -> Flow[list[Answer]]:
        """Charge group by group, in ascending order of hash slots; at the first refusal undo the earlier ones.

        The order is what lets one of several racing callers through: whoever is refused met someone who is ahead.
        """
        groups = self._groups(parts)
        if len(groups) > 1 and self._refused_lately(parts):
            refusals = yield from self._look(groups, wire_id)
            if refusals:
                return refusals
        answers: list[Answer] = []
        for group in groups:
            try:
                answer = Answer(group, (yield calls.admit(group, wire_id)))
            except BaseException as error:
                # Nothing is awaited in a cancelled task: what was taken, or may have been, is undone in the background.
                for earlier in self._undo(answers, wire_id):
                    self.upkeep.later(earlier)
                if not isinstance(error, StoreError) and not self._ours(group, id):
                    self.upkeep.later(calls.undo(group, wire_id), again=True)
                raise
            answers.append(answer)
            if answer.record[0] == calls.REFUSED:
                if len(groups) > 1:
                    yield from self._send(self._undo(answers[:-1], wire_id))
                    self._remember([answer])
                break
        return answers

    def _look(self, groups: Sequence[Parts], wire_id: bytes) -> Flow[list[Answer]]:
        """Ask every group without taking anything; returns the answers of those that would refuse.

        Without it, callers that can't get in would again and again hold the first groups for a moment and keep out
        callers that can.
        """
        refusals = []
        for group in groups:
            answer = Answer(group, (yield calls.admit(group, wire_id, calls.DRY)))
            if answer.status == calls.REFUSED:
                refusals.append(answer)
        self._remember(refusals)
        return refusals

    def _undo(self, answers: list[Answer], wire_id: bytes) -> list[Call]:
        """The calls that take back what was taken, the last one first."""
        parts = [calls.taken(answer) for answer in reversed(answers)]
        return [calls.undo(group, wire_id) for group in parts if group]

    def _send(self, pending: list[Call]) -> Flow[None]:
        """Send calls one after another; in trouble the rest is left to the background, and the answer stands."""
        for at, call in enumerate(pending):
            try:
                yield call
            except BaseException as error:
                for rest in pending[at:]:
                    self.upkeep.later(rest)
                if not isinstance(error, PyslotError):
                    raise
                break

    def _ours(self, group: Parts, id: str) -> bool:
        # An id that this limiter already holds was granted before: a lost re-send must not take that away.
        return any(self.upkeep.holding(id, part.wire.key) for part in group)

    def _groups(self, parts: Parts) -> Sequence[Parts]:
        if self._group and len(parts) > 1:
            return calls.grouped(parts)
        return (parts,) if parts else ()

    # What was refused lately

    def _refused_lately(self, parts: Parts) -> bool:
        now = self._clock()
        return any(self._refused_until.get(part.wire.key, 0.0) > now for part in parts)

    def _remember(self, refusals: list[Answer]) -> None:
        now = self._clock()
        if len(self._refused_until) > REMEMBERED:
            self._refused_until = {key: until for key, until in self._refused_until.items() if until > now}
        for answer in refusals:
            for part, verdict, used, reset in answer.figures():
                if verdict == calls.FULL:
                    wait = self._slot_wait(part, used, reset) if isinstance(part.limit, Slots) else reset / 1000
                    until = self._refused_until.get(part.wire.key, 0.0)
                    # A window's end is known the first time. A clock that was set back would move it on for ever, and
                    # only a real admission sets the window's start right.
                    if until <= now or isinstance(part.limit, Slots):
                        self._refused_until[part.wire.key] = now + wait

    def _slot_wait(self, part: Part, used: int, reset_ms: int) -> float:
        return self.upkeep.slot_wait(part, used, reset_ms / 1000)

    # The end of a permit

    def finish(self, permit: BasePermit) -> Flow[Outcome]:
        """Give slots back and settle charges; what can't be sent now is sent later, and the error raised."""
        pending = self._end(permit)
        released = settled = bool(pending)
        late = not pending and bool(permit.parts)
        slots = windows = 0
        for at, (group, call) in enumerate(pending):
            try:
                reply = yield call
            except BaseException:
                for _, rest in pending[at:]:
                    self.upkeep.later(rest)
                raise
            for part, held in zip(group, reply[1:], strict=True):
                if part.wire.span == b"s":
                    slots += 1
                    released = released and bool(held)
                    self._lines.freed(part.wire.key)
                else:
                    windows += 1
                    settled = settled and bool(held)
                late = late or not held
        outcome = Outcome(released and slots > 0, settled and windows > 0, late)
        if self._hooks and pending:
            self._hooks.settle(permit, outcome, self._clock() - permit.started)
        return outcome

    def _hold(self, permit: BasePermit, started: float) -> None:
        permit.started = started
        for part in permit.parts:
            if part.wire.span == b"s":
                self.upkeep.hold(permit, part)

    def _let_go(self, permit: BasePermit) -> bool:
        """Take a permit out of the hands of this limiter; False where that was done before."""
        if not permit.close():
            return False
        at = self._clock()
        for part in permit.parts:
            if part.wire.span == b"s":
                self.upkeep.drop(permit.id, part.wire.key, at)
        return True

    def _end(self, permit: BasePermit) -> list[tuple[Parts, Call]]:
        """What is to be sent for a permit that ends, once."""
        if not self._let_go(permit):
            return []
        if self._fallback:
            self._fallback.finish(permit.parts, permit.wire_id)
        return [(group, calls.finish(group, permit.wire_id, permit.figures)) for group in self._groups(permit.parts)]

    def finish_later(self, permit: BasePermit) -> None:
        """Finish in the background: for a task that is being cancelled and must not wait for anything."""
        for _, call in self._end(permit):
            self.upkeep.later(call)

    def handle(self, id: str, asked: Iterable[Asked]) -> P:
        """A permit by its id alone, to settle and finish it from anywhere. It is not renewed here."""
        parts = calls.parts_of(asked, self.naming, charged=False)
        return self._make_permit(check_id(id), encode_id(id), parts)

    def detach(self, permit: BasePermit) -> bytes:
        """Let go of a permit; the token says all another process needs."""
        at = self._clock()
        self._let_go(permit)
        limits = [(part.limit, permit.figures.get(part.wire.key)) for part in permit.parts]
        return token.pack(self.naming, permit.id, at - permit.started, limits)

    def adopt(self, data: bytes) -> P:
        """Take over a permit that another limiter let go: from now on it is renewed and finished here."""
        id, held, limits = token.unpack(self.naming, data)
        permit = self.handle(id, [limit for limit, _ in limits])
        permit.figures.update({limit.wire(self.naming).key: units for limit, units in limits if units is not None})
        self._hold(permit, self._clock() - held)
        return permit

    # Looking and forgetting

    def peek(self, asked: Iterable[Asked]) -> Flow[tuple[Status, ...]]:
        parts = calls.parts_of(asked, self.naming, charged=False)
        figures: dict[bytes, tuple[int, int]] = {}
        for group in self._groups(parts):
            reply = yield calls.peek(group)
            figures |= zip((part.wire.key for part in group), zip(reply[::2], reply[1::2], strict=True), strict=True)
        statuses = []
        for limit, units, wire in parts:
            used, reset = figures[wire.key]
            statuses.append(status_of(limit, used, reset, limit.limit is not None and used + units > limit.limit))
        return tuple(statuses)

    def count(self, slots: Slots) -> Flow[int]:
        parts = calls.parts_of((slots,), self.naming)
        if not isinstance(slots, Slots):
            raise InvalidLimit(f"only slots can be counted, peek shows a window: {slots!r}")
        return (yield calls.count(parts))[0]

    def reset(self, asked: Iterable[Asked]) -> Flow[None]:
        for group in self._groups(calls.parts_of(asked, self.naming, charged=False)):
            yield calls.reset(group)


def _check_wait(wait: float) -> float:
    if type(wait) not in (int, float) or not 0 <= wait < float("inf"):
        raise InvalidLimit(f"wait must be a number of seconds of at least 0, not {wait!r}")
    return wait


def check_deadline(deadline: float) -> float:
    if type(deadline) not in (int, float) or not 0 < deadline < float("inf"):
        raise UsageError(f"deadline must be a number of seconds above 0, not {deadline!r}")
    return deadline


def check_on_error(on_error: OnError) -> OnError:
    if on_error not in ("keep", "refund"):
        raise UsageError(f"on_error must be 'keep' or 'refund', not {on_error!r}")
    return on_error
