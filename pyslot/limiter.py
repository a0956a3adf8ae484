"""The synchronous shell: drives flows by blocking."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Self, TypeVar

from pyslot import forks
from pyslot.adapters.base import open_store
from pyslot.decision import Decision, Outcome, Status
from pyslot.ends import Flow
from pyslot.errors import UsageError
from pyslot.flows import Flows, check_deadline, check_on_error
from pyslot.hooks import Hooks, guarded
from pyslot.incidents import Incidents
from pyslot.keys import Naming
from pyslot.kinds import Asked, Charge, Limit, Slots, Window
from pyslot.lines import Listen
from pyslot.outage import Outage
from pyslot.permit import OnError, Permit
from pyslot.policy import Policy
from pyslot.renewer import OnLost, Upkeep
from pyslot.thread import Worker as _Worker
from pyslot.thread import drive, listen

T = TypeVar("T")


class Limiter:
    """Keeps this process, and every other that uses the same server, inside shared limits.

    Safe to share between threads. For asyncio there is `AsyncLimiter`, with the same names.
    """

    # Time comes in here, so that tests of services can drive it: see pyslot.testing.
    _monotonic: Callable[[], float] = staticmethod(time.monotonic)
    _wall: Callable[[], float] = staticmethod(time.time)
    _sleep: Callable[[float], object] = staticmethod(time.sleep)
    _listen: Callable[[Listen], object] = staticmethod(listen)

    def __init__(
        self,
        target: str | object,
        *,
        prefix: str = "pyslot",
        hash_names: bool = False,
        group_by_slot: bool | None = None,
        deadline: float = 1.0,
        on_outage: Policy = "raise",
        on_lost: OnLost = "rejoin",
        hooks: Iterable[Hooks] = (),
        breaker: bool = True,
    ) -> None:
        """
        Args:
            target: a store URL such as "redis://localhost:6379", or a synchronous redis-py or valkey-py client. A
                client that is passed in stays as it is and is never closed.
            prefix: what every key starts with.
            hash_names: store the SHA-256 of subjects in place of the subjects, where those are secrets.
            group_by_slot: send one call for each hash slot; None does so on a cluster. True is for proxies in front of
                one.
            deadline: seconds within which each call on the server has answered or failed.
            on_outage: what to do when the server can't be reached: "raise", "closed", "open" or `Local(share)`.
            on_lost: what to do with permits whose slots were lost: "rejoin" the gauge, or "stop" renewing; or a
                function that is told of each such permit, in the thread that renews leases, and returns one of the two.
            hooks: who is told what happens here, for logs and metrics.
            breaker: after a call without an answer don't ask that server again until it has answered a probe. False
                asks every time, which costs the deadline every time.
        """
        naming = Naming(prefix, hash_names=hash_names)
        listening = guarded(hooks)
        self._incidents = Incidents(listening)
        outage = Outage(on_outage, self._monotonic, self._incidents, breaker=breaker)
        upkeep = Upkeep(
            self._monotonic,
            deadline=check_deadline(deadline),
            on_lost=on_lost,
            incidents=self._incidents,
            outage=outage,
        )
        self._store = open_store(target, deadline)
        outage.locate = getattr(self._store, "place", outage.locate)
        self._flows = Flows(
            naming,
            upkeep,
            partial(Permit, self),
            clock=self._monotonic,
            group=self._store.cluster if group_by_slot is None else group_by_slot,
            outage=outage,
            hooks=listening,
            make_bell=threading.Event,
        )
        self._worker = self._work(upkeep)
        self._closed = False
        forks.watch(self)
        weakref.finalize(self, _end, weakref.ref(self), self._worker)

    def acquire(
        self,
        *limits: Asked,
        id: str | None = None,
        wait: float | None = None,
        on_error: OnError = "keep",
    ) -> AbstractContextManager[Permit]:
        """Take all limits or none for the time of a `with` block; nothing is sent before the block is entered.

        Raises `LimitExceeded` where a limit refuses. With `wait`, up to so many seconds for room. With
        `on_error="refund"` a block that raises takes its unsettled charges back; otherwise they stand.
        """
        if on_error != "keep":
            check_on_error(on_error)
        return _Acquisition(self, limits, id, wait, on_error)

    def try_acquire(self, *limits: Asked, id: str | None = None, wait: float | None = None) -> Decision[Permit]:
        """Take all limits or none, and say which: a refusal is a false `Decision`, not an exception.

        `id` is the caller's own name for the permit, at most 128 bytes: asking again under the same id holds once.
        """
        flows = self._flows
        if self._closed or (straight := flows.straight(limits, id, wait)) is None:
            return self._run(flows.acquire(limits, id, wait))
        parts, own, call, began = straight
        try:
            record = self._store.run(call)
        except BaseException as error:
            if (decision := flows.unanswered(parts, own, error, began)) is None:
                raise
            return decision
        return flows.decision(parts, own, record, began)

    def charge(self, *charges: Charge | Window) -> Decision[None]:
        """Charge windows without a permit: counted or refused, and nothing to finish."""
        return self._run(self._flows.charge(charges))

    def handle(self, id: str, *limits: Limit) -> Permit:
        """A permit by id and limits, to settle or finish from anywhere. Sends nothing and renews nothing."""
        return self._flows.handle(id, limits)

    def adopt(self, token: bytes) -> Permit:
        """Take over a detached permit: renewed and finished here from now on. Tokens are trusted input."""
        return self._flows.adopt(token)

    def count(self, slots: Slots) -> int:
        """How many slots are held now."""
        return self._run(self._flows.count(slots))

    def peek(self, *limits: Asked) -> tuple[Status, ...]:
        """Where limits stand, without taking anything. `would_refuse` is for one more unit, or for the cost given."""
        return self._run(self._flows.peek(limits))

    def reset(self, *limits: Limit) -> None:
        """Forget all that limits hold: every slot, every unit, whoever has them."""
        self._run(self._flows.reset(limits))

    @property
    def incidents(self) -> Mapping[str, int]:
        """How often what happened that should not: `leaked` leases, `abandoned` permits, `lost` and `rejoined` slots,
        `outages`, `dropped` clean-up calls."""
        return MappingProxyType(self._incidents.counts)

    def close(self) -> None:
        """Send what is still waiting, for at most `deadline`, stop renewing, and close what was opened here.

        Permits that are still held keep their slots until their leases run out.
        """
        if not self._closed:
            self._closed = True
            self._worker.close()
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Limiter {self._flows.naming.prefix!r} on {self._store!r}{', closed' if self._closed else ''}>"

    def _work(self, upkeep: Upkeep) -> _Worker:
        return _Worker(upkeep, self._store)

    def after_fork(self) -> None:
        """In a forked child: what the parent holds is the parent's."""
        self._flows.upkeep.after_fork()
        self._flows.after_fork()
        self._worker.after_fork()
        if renew := getattr(self._store, "after_fork", None):
            renew()

    def _finish(self, permit: Permit) -> Outcome:
        flows = self._flows
        if self._closed or (call := flows.ending(permit)) is None:
            return self._run(flows.finish(permit))
        try:
            reply = self._store.run(call)
        except BaseException as error:
            if (outcome := flows.unended(permit, error)) is None:
                raise
            return outcome
        return flows.ended(permit, reply)

    def _run(self, flow: Flow[T]) -> T:
        if self._closed:
            flow.close()
            raise UsageError("this limiter is closed: make a new one")
        return drive(flow, self._store, self._sleep, self._listen)


def _end(limiter: weakref.ref[Limiter], worker: _Worker) -> None:
    """A limiter that nobody has any more ends its thread; at the interpreter's exit its permits end as well."""
    if (left := limiter()) is None:
        worker.stop()
    elif not left._closed:
        for permit in left._flows.upkeep.held():
            left._flows.finish_later(permit)
        left.close()


class _Acquisition(AbstractContextManager[Permit]):
    """What `acquire` returns: does its work on entering the block."""

    __slots__ = ("_args", "_limiter", "_on_error", "_permit")

    def __init__(
        self, limiter: Limiter, limits: tuple[Asked, ...], id: str | None, wait: float | None, on_error: OnError
    ) -> None:
        self._limiter = limiter
        self._args = (limits, id, wait)
        self._on_error = on_error

    def __enter__(self) -> Permit:
        limiter, (limits, id, wait) = self._limiter, self._args
        flows = limiter._flows
        if limiter._closed or (straight := flows.straight(limits, id, wait)) is None:
            permit = limiter._run(flows.acquire(limits, id, wait)).require()
        else:
            # As in try_acquire, and not through it: a decision and a frame more cost a twentieth of all there is.
            parts, own, call, began = straight
            decision = None
            try:
                record = limiter._store.run(call)
            except BaseException as error:
                if (decision := flows.unanswered(parts, own, error, began)) is None:
                    raise
            permit = flows.permit(parts, own, record, began) if decision is None else decision.require()
        self._permit = permit
        permit.on_error = self._on_error
        return permit

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._permit.__exit__(kind, error, trace)
