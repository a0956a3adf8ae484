"""What happens in one request, without doing any of it: generators that yield calls and sleeps and get replies.

One logic for both colours, after the habit of sans-I/O libraries: `Limiter` drives these flows by blocking,
`AsyncLimiter` by awaiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import uniform
from typing import TypeAlias, cast
from weakref import WeakValueDictionary

from pyslot import calls
from pyslot.calls import Answer, Parts
from pyslot.cleanup import Why
from pyslot.decision import Decision
from pyslot.ends import Ends, Flow, P, T
from pyslot.errors import InvalidLimit, PyslotError, StoreBusy, StoreError, StoreSkipped, StoreUnavailable, UsageError
from pyslot.hooks import Guarded
from pyslot.ids import check_id, encode_id, new_id
from pyslot.keys import Naming
from pyslot.kinds import Asked, Slots
from pyslot.lines import Bell, Lines, Listen, Place
from pyslot.loader import Call
from pyslot.outage import LONGEST_PAUSE, Outage
from pyslot.parts import Part
from pyslot.permit import OnError
from pyslot.renewer import Sleep, Upkeep

LONGEST_SLEEP = 1.0
"""Seconds a waiter sleeps at most before it asks again: room may come early, from a refund or a settled estimate."""
SHORTEST_SLEEP = 0.001
_LEAKED = slice(calls.FIGURES, None, calls.FIGURES)
"""Of the record of an admission, what says how many leases of each part had ended unreleased."""
REMEMBERED = 10_000
"""Recent refusals kept for the look, at most."""


Straight: TypeAlias = tuple[Parts, bytes, Call, float]
"""What is asked for, the new permit's id, the call that takes it, and when it began if anybody listens."""


class Flows(Ends[P]):
    """The flows of one limiter, and what it remembers between them."""

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
        super().__init__(
            naming, upkeep, make_permit, clock=clock, group=group, outage=outage, hooks=hooks, make_bell=make_bell
        )
        self._named: WeakValueDictionary[bytes, P] = WeakValueDictionary()
        """Permits under ids that callers chose: those may be asked for again."""
        self._refused_until: dict[bytes, float] = {}

    def after_fork(self) -> None:
        """In a child nobody waits yet, and ids are asked for anew."""
        self._lines = Lines(self._make_bell)
        self._named = WeakValueDictionary()

    # The usual request, in a straight line: one call, with nothing in its way

    def straight(self, asked: Sequence[Asked], id: str | None, wait: float | None) -> Straight | None:
        """The one call that decides a request; None where there is more to it, and `acquire` goes the long way.

        Most requests need not: a flow to drive costs as much again as all else here.
        """
        if id is not None or wait is not None or self._outage.troubled or not asked:
            return None
        if self._group and len(asked) > 1:
            return None
        parts = calls.parts_of(asked, self.naming)
        own = new_id()
        return parts, own, calls.admit(parts, own), self._clock() if self._hooks else 0.0

    def permit(self, parts: Parts, id: bytes, record: Sequence[int], began: float) -> P:
        """The permit that the call took; raises `LimitExceeded` where its reply is a refusal."""
        if not record[0]:
            return self.decision(parts, id, record, began).require()
        if record[calls.FIGURES] or (len(parts) > 1 and any(record[_LEAKED])):
            self._leaked(Answer(parts, record))
        permit = self._make_permit(id, parts)
        now = self._clock()
        self.upkeep.hold(permit, now, now)
        if self.naming.local:
            self._outage.saw((Answer(parts, record),))
        if self._hooks:
            self._decided(Decision(permit, (Answer(parts, record),), self._slot_wait), began)
        return permit

    def decision(self, parts: Parts, id: bytes, record: Sequence[int], began: float) -> Decision[P]:
        """The decision that the call's reply is, with the permit where it took one."""
        answers = (Answer(parts, record),)
        if not record[0]:
            return self._decided(Decision(None, answers, self._slot_wait), began)
        return Decision(self.permit(parts, id, record, began), answers, self._slot_wait)

    def unanswered(self, parts: Parts, id: bytes, error: BaseException, began: float) -> Decision[P] | None:
        """The call met an error: what an outage policy decides; None where the error is to be raised."""
        self._unsure(parts, id, [], error)
        decision = self._degraded(parts, id, error)
        return None if decision is None else self._decided(decision, began)

    # Admission

    def acquire(self, asked: Iterable[Asked], id: str | None, wait: float | None) -> Flow[Decision[P]]:
        """Take all limits for one permit or none, waiting up to `wait` seconds for room."""
        return self._acquire(asked, None, wait) if id is None else self._acquire_named(asked, id, wait)

    def _acquire_named(self, asked: Iterable[Asked], id: str, wait: float | None) -> Flow[Decision[P]]:
        """Under an id that may have been used before: an end that is still to be sent goes first, an undo waits."""
        parts = calls.parts_of(asked, self.naming)
        wire_id = encode_id(check_id(id))
        backlog = self.upkeep.backlog
        while not backlog.claim(wire_id):
            yield Sleep(0.005)  # a call for it is on its way, which takes the deadline at most
        try:
            if parts and backlog.waiting(wire_id, Why.END):
                began = self._clock()
                try:
                    self._check(parts)
                    yield from self.upkeep.flush(wire_id)
                except StoreUnavailable as error:
                    self._failed(parts, error)
                    if (degraded := self._degraded(parts, wire_id, error)) is None:
                        raise
                    return self._decided(degraded, began)
            return (yield from self._acquire(asked, wire_id, wait))
        finally:
            backlog.release(wire_id)
            if wire_id in backlog.queues:
                self.upkeep.wake()

    def _acquire(self, asked: Iterable[Asked], own: bytes | None, wait: float | None) -> Flow[Decision[P]]:
        parts = calls.parts_of(asked, self.naming)
        id = own or new_id()
        end = self._clock() + _check_wait(wait) if wait is not None else None
        began = self._clock() if self._hooks else 0.0
        # A caller's own id may be held already: that is for the server to say, at once.
        place = self._behind(parts) if wait and own is None else None
        try:
            while True:
                if place and end:
                    yield from self._stand(place, end)
                try:
                    answers = yield from self._admit(parts, id)
                except StoreUnavailable as error:
                    if place:
                        place.disperse()
                    if (degraded := self._degraded(parts, id, error)) is None:
                        raise
                    decision = degraded
                else:
                    if not answers or answers[-1].record[0]:
                        permit = self._granted(id, parts, answers, named=own is not None)
                        decision = Decision(permit, answers, self._slot_wait)
                        return self._decided(decision, began)
                    decision = self._refused(parts, answers)
                if decision or end is None or decision.retry_after is None or (left := end - self._clock()) <= 0:
                    return self._decided(decision, began)
                place = self._line_up(decision, place)
                yield from self._pause(decision, decision.retry_after, left, place)
        finally:
            if place:
                place.leave()

    def _granted(self, id: bytes, parts: Parts, answers: list[Answer], *, named: bool) -> P:
        now = self._clock()
        for answer in answers:
            if any(answer.record[_LEAKED]):
                self._leaked(answer)
        if not named:
            permit = self._make_permit(id, parts)
        else:
            self.upkeep.backlog.cancel_undos(id, [part.wire.key for part in parts])
            held = self._named.get(id)
            if held is not None and held.is_open and held.parts == parts:
                return held
            permit = self._named[id] = self._make_permit(id, parts)
        self.upkeep.hold(permit, now, now)
        if self.naming.local:
            self._outage.saw(answers)
        return permit

    def _leaked(self, answer: Answer) -> None:
        for part, ended in zip(answer.parts, answer.record[_LEAKED], strict=True):
            if ended:
                self.upkeep.incidents.leaked(part, ended)

    def _degraded(self, parts: Parts, id: bytes, error: BaseException, *, hold: bool = True) -> Decision[P] | None:
        """What the outage policies decide; None where one of them says to raise, or where this is no outage."""
        if not isinstance(error, StoreUnavailable) or isinstance(error, StoreBusy) or self._outage.raises(parts):
            return None
        answers = [self._outage.decide(parts, id)]
        permit = None
        if answers[0].record[0]:
            now = self._clock()
            if hold:
                permit = self._named[id] = self._make_permit(id, parts)
                self.upkeep.hold(permit, now, now)
            self._outage.booked(parts, id)
            self.upkeep.backlog.cancel_undos(id, [part.wire.key for part in parts])
            self.upkeep.join_later(id, self._groups(parts), permit, now)
        decision = Decision(permit, answers, self._slot_wait, degraded=True)
        if not decision and not decision.refused_by:
            decision.set_retry_after(LONGEST_PAUSE)  # by then the server has been probed again
        return decision

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

    def charge(self, asked: Iterable[Asked]) -> Flow[Decision[None]]:
        """Charge all windows or none, with nothing to finish."""
        parts = calls.parts_of(asked, self.naming)
        for part in parts:
            if isinstance(part.limit, Slots):
                raise InvalidLimit(f"only windows can be charged, a slot is held by a permit: {part.limit!r}")
        id = new_id()
        began = self._clock() if self._hooks else 0.0
        try:
            answers = yield from self._admit(parts, id)
        except StoreUnavailable as error:
            if (degraded := self._degraded(parts, id, error, hold=False)) is None:
                raise
            return self._decided(cast("Decision[None]", degraded), began)
        if answers and not answers[-1].record[0]:
            return self._decided(cast("Decision[None]", self._refused(parts, answers)), began)
        if self.naming.local:
            self._outage.saw(answers)
        return self._decided(Decision(None, answers, self._slot_wait), began)

    def _decided(self, decision: Decision[T], began: float) -> Decision[T]:
        if self._hooks:
            self._hooks.decision(decision, self._clock() - began)
        return decision

    def _admit(self, parts: Parts, wire_id: bytes) -> Flow[list[Answer]]:
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
                if self._outage.troubled:
                    self._outage.check(group[0])
                answer = Answer(group, (yield calls.admit(group, wire_id)))
            except BaseException as error:
                self._unsure(group, wire_id, answers, error)
                raise
            answers.append(answer)
            if answer.record[0] == calls.REFUSED:
                if len(groups) > 1:
                    yield from self._send(wire_id, self._undo(answers[:-1], wire_id))
                break
        return answers

    def _unsure(self, group: Parts, wire_id: bytes, answers: list[Answer], error: BaseException) -> None:
        """A call met an error. Nothing is awaited in a cancelled task: what was taken before, or may have been now, is
        undone in the background."""
        for taken, call in self._undo(answers, wire_id):
            self.upkeep.later(wire_id, Why.UNDO, taken, call)
        unsent = isinstance(error, (StoreError, StoreBusy, StoreSkipped))
        if not unsent and not self._ours(group, wire_id):
            self.upkeep.later(wire_id, Why.UNDO, group, calls.undo(group, wire_id), again=True)
        self._failed(group, error)

    def _look(self, groups: Sequence[Parts], wire_id: bytes) -> Flow[list[Answer]]:
        """Ask every group without taking anything; returns the answers of those that would refuse.

        Without it, callers that can't get in would again and again hold the first groups for a moment and keep out
        callers that can.
        """
        refusals = []
        for group in groups:
            answer = Answer(group, (yield from self._ask(group, calls.admit(group, wire_id, calls.DRY))))
            if answer.status == calls.REFUSED:
                refusals.append(answer)
        return refusals

    def _undo(self, answers: list[Answer], wire_id: bytes) -> list[tuple[Parts, Call]]:
        """The calls that take back what was taken, the last one first."""
        parts = [calls.taken(answer) for answer in reversed(answers)]
        return [(group, calls.undo(group, wire_id)) for group in parts if group]

    def _send(self, wire_id: bytes, pending: list[tuple[Parts, Call]]) -> Flow[None]:
        """Send undos one after another; in trouble the rest is left to the background, and the answer stands."""
        for at, (group, call) in enumerate(pending):
            try:
                self._check(group)
                yield call
            except BaseException as error:
                for rest, left in pending[at:]:
                    self.upkeep.later(wire_id, Why.UNDO, rest, left)
                self._failed(group, error)
                if not isinstance(error, PyslotError):
                    raise
                break

    def _ours(self, group: Parts, wire_id: bytes) -> bool:
        # An id that this limiter already holds was granted before: a lost re-send must not take that away.
        permit = self._named.get(wire_id)
        return permit is not None and permit.is_open and set(group) <= set(permit.parts)

    # What was refused lately

    def _refused_lately(self, parts: Parts) -> bool:
        now = self._clock()
        return any(self._refused_until.get(part.wire.key, 0.0) > now for part in parts)

    def _refused(self, parts: Parts, answers: list[Answer]) -> Decision[P]:
        decision: Decision[P] = Decision(None, answers, self._slot_wait)
        if len(self._groups(parts)) > 1 and not decision.impossible:
            self._remember(decision)
        return decision

    def _remember(self, refusal: Decision[P]) -> None:
        now = self._clock()
        if len(self._refused_until) > REMEMBERED:
            self._refused_until = {key: until for key, until in self._refused_until.items() if until > now}
        for part, wait in refusal._waits():
            until = self._refused_until.get(part.wire.key, 0.0)
            # A window's end is known the first time. A clock that was set back would move it on for ever, and only a
            # real admission sets the window's start right.
            if until <= now or isinstance(part.limit, Slots):
                self._refused_until[part.wire.key] = now + wait

    def _slot_wait(self, part: Part, used: int, reset_ms: int) -> float:
        return self.upkeep.slot_wait(part, used, reset_ms / 1000)


def _check_wait(wait: float) -> float:
    if type(wait) not in (int, float) or not 0 <= wait < float("inf"):
        raise InvalidLimit(f"wait must be a number of seconds of at least 0, not {wait!r}")
    return wait


def check_deadline(deadline: float) -> float:
    if type(deadline) not in (int, float) or not 0 < deadline < float("inf"):
        raise UsageError(f"deadline must be a number of seconds above 0, not {deadline!r}")
    return deadline


def check_on_error(on_error: OnError) -> None:
    if on_error not in ("keep", "refund"):
        raise UsageError(f"on_error must be 'keep' or 'refund', not {on_error!r}")
