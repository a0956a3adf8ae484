"""The asynchronous shell: drives flows by awaiting."""

from __future__ import annotations

import asyncio
import time
import weakref
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar

from pyslot import forks, thread
from pyslot.adapters.base import AsyncStore, Store, open_async_store
from pyslot.coalesce import Coalescer
from pyslot.decision import Decision, Outcome, Status
from pyslot.ends import Flow
from pyslot.errors import UsageError
from pyslot.flows import Flows, check_deadline, check_on_error
from pyslot.hooks import Hooks, guarded
from pyslot.incidents import Incidents
from pyslot.keys import Naming
from pyslot.kinds import Asked, Charge, Limit, Slots, Window
from pyslot.lines import Listen
from pyslot.loader import Call
from pyslot.outage import Outage
from pyslot.permit import AsyncPermit, OnError, not_finished
from pyslot.policy import Policy
from pyslot.renewer import OnLost, Upkeep
from pyslot.task import Worker as _Worker
from pyslot.task import drive, listen

T = TypeVar("T")


class AsyncLimiter:
    """Keeps this process, and every other that uses the same server, inside shared limits.

    Belongs to the event loop it is first used on. Without asyncio there is `Limiter`, with the same names.
    """

    # Time comes in here, so that tests of services can drive it: see pyslot.testing.
    _monotonic: Callable[[], float] = staticmethod(time.monotonic)
    _wall: Callable[[], float] = staticmethod(time.time)
    _sleep: Callable[[float], Awaitable[object]] = staticmethod(asyncio.sleep)
    _listen: Callable[[Listen], Awaitable[object]] = staticmethod(listen)

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
        coalesce: bool = True,
        breaker: bool = True,
        threaded: bool = False,
    ) -> None:
        """
        Args:
            target: a store URL such as "redis://localhost:6379", or an asyncio client of redis-py or valkey-py. A
                client that is passed in stays as it is and is never closed.
            prefix: what every key starts with.
            hash_names: store the SHA-256 of subjects in place of the subjects, where those are secrets.
            group_by_slot: send one call for each hash slot; None does so on a cluster. True is for proxies in front of
                one.
            deadline: seconds within which each call on the server has answered or failed.
            on_outage: what to do when the server can't be reached: "raise", "closed", "open" or `Local(share)`.
            on_lost: what to do with permits whose slots were lost: "rejoin" the gauge, or "stop" renewing; or a
                function that is told of each such permit, in the task that renews leases, and returns one of the two.
            hooks: who is told what happens here, for logs and metrics.
            coalesce: calls that wait for the server together travel together. False sends each by itself, for
                debugging.
            breaker: after a call without an answer don't ask that server again until it has answered a probe. False
                asks every time, which costs the deadline every time.
            threaded: renew leases in a thread, over connections of its own, for loops that may be blocked for as long
                as a third of a lease. Needs a URL.
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
        self._deadline = deadline
        self._store = open_async_store(target, deadline)
        outage.locate = getattr(self._store, "place", outage.locate)
        self._flows = Flows(
            naming,
            upkeep,
            partial(AsyncPermit, self),
            clock=self._monotonic,
            group=self._store.cluster if group_by_slot is None else group_by_slot,
            outage=outage,
            hooks=listening,
            make_bell=asyncio.Event,
        )
        self._coalesce = coalesce
        self._hooks = listening
        self._coalescer: Coalescer | None = None
        self._send: Callable[[Call], Awaitable[Sequence[int]]] = self._store.run
        self._blocking: Store | None = None
        if threaded:
            self._blocking = _blocking(self._store)
            if self._blocking is None:
                raise UsageError("threaded=True needs connections of its own: give the limiter a URL, not a client")
        self._worker = self._work(upkeep)
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        forks.watch(self)
        weakref.finalize(self, _end, weakref.ref(self), self._worker)

    def acquire(
        self,
        *limits: Asked,
        id: str | None = None,
        wait: float | None = None,
        on_error: OnError = "keep",
    ) -> AbstractAsyncContextManager[AsyncPermit]:
        """Take all limits or none for the time of an `async with` block; nothing is sent before it is entered.

        Raises `LimitExceeded` where a limit refuses. With `wait`, up to so many seconds for room. With
        `on_error="refund"` a block that raises takes its unsettled charges back; otherwise they stand.
        """
        if on_error != "keep":
            check_on_error(on_error)
        return _Acquisition(self, limits, id, wait, on_error)

    async def try_acquire(
        self, *limits: Asked, id: str | None = None, wait: float | None = None
    ) -> Decision[AsyncPermit]:
        """Take all limits or none, and say which: a refusal is a false `Decision`, not an exception.

        `id` is the caller's own name for the permit, at most 128 bytes: asking again under the same id holds once.
        """
        flows = self._flows
        ready = get_running_loop() is self._loop and not self._closed
        if not ready or (straight := flows.straight(limits, id, wait)) is None:
            return await self._run(flows.acquire(limits, id, wait))
        parts, own, call, began = straight
        try:
            record = await self._send(call)
        except BaseException as error:
            if (decision := flows.unanswered(parts, own, error, began)) is None:
                raise
            return decision
        return flows.decision(parts, own, record, began)

    async def charge(self, *charges: Charge | Window) -> Decision[None]:
        """Charge windows without a permit: counted or refused, and nothing to finish."""
        return await self._run(self._flows.charge(charges))

    def handle(self, id: str, *limits: Limit) -> AsyncPermit:
        """A permit by id and limits, to settle or finish from anywhere. Sends nothing and renews nothing."""
        return self._flows.handle(id, limits)

    def adopt(self, token: bytes) -> AsyncPermit:
        """Take over a detached permit: renewed and finished here from now on. Tokens are trusted input."""
        return self._flows.adopt(token)

    async def count(self, slots: Slots) -> int:
        """How many slots are held now."""
        return await self._run(self._flows.count(slots))

    async def peek(self, *limits: Asked) -> tuple[Status, ...]:
        """Where limits stand, without taking anything. `would_refuse` is for one more unit, or for the cost given."""
        return await self._run(self._flows.peek(limits))

    async def reset(self, *limits: Limit) -> None:
        """Forget all that limits hold: every slot, every unit, whoever has them."""
        await self._run(self._flows.reset(limits))

    @property
    def incidents(self) -> Mapping[str, int]:
        """How often what happened that should not: `leaked` leases, `abandoned` permits, `lost` and `rejoined` slots,
        `outages`, `dropped` clean-up calls."""
        return MappingProxyType(self._incidents.counts)

    async def aclose(self) -> None:
        """Send what is still waiting, for at most `deadline`, stop renewing, and close what was opened here.

        Permits that are still held keep their slots until their leases run out.
        """
        if not self._closed:
            self._closed = True
            if self._loop is not get_running_loop():
                self._enter()
            if isinstance(self._worker, thread.Worker):
                await asyncio.to_thread(self._worker.close)
            else:
                await self._worker.aclose()
            if self._coalescer:
                await self._coalescer.aclose()
            await self._store.aclose()
            if self._blocking is not None:
                self._blocking.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"<AsyncLimiter {self._flows.naming.prefix!r} on {self._store!r}{closed}>"

    def _work(self, upkeep: Upkeep) -> _Worker | thread.Worker:
        if self._blocking is not None:
            return thread.Worker(upkeep, self._blocking)
        return _Worker(upkeep, self._run_late, self._deadline)

    def after_fork(self) -> None:
        """In a forked child: what the parent holds is the parent's, and its connections are on the parent's loop."""
        self._flows.upkeep.after_fork()
        self._flows.after_fork()
        self._worker.after_fork()
        for store in (self._store, self._blocking):
            if renew := getattr(store, "after_fork", None):
                renew()
        self._loop = None

    def _enter(self) -> None:
        """Used on a loop for the first time."""
        loop = get_running_loop()
        if self._loop is not None:
            if self._loop.is_running():
                raise UsageError("this AsyncLimiter is in use on another event loop: make one limiter for each loop")
            if renew := getattr(self._store, "next_loop", None):
                renew()
        self._loop = loop
        self._coalescer = Coalescer(self._store, self._deadline, loop, self._hooks)
        if self._coalesce:
            self._send = self._coalescer.run
        if self._flows.upkeep.busy:
            self._flows.upkeep.wake()

    async def _run_late(self, call: Call) -> Sequence[int]:
        return await (self._coalescer.run_late(call) if self._coalescer else self._store.run(call))

    async def _finish(self, permit: AsyncPermit) -> Outcome:
        flows = self._flows
        ready = get_running_loop() is self._loop and not self._closed
        if not ready or (call := flows.ending(permit)) is None:
            return await self._run(flows.finish(permit))
        try:
            reply = await self._send(call)
        except BaseException as error:
            if (outcome := flows.unended(permit, error)) is None:
                raise
            return outcome
        return flows.ended(permit, reply)

    def _run(self, flow: Flow[T]) -> Coroutine[Any, Any, T]:
        if self._closed:
            flow.close()
            raise UsageError("this limiter is closed: make a new one")
        if get_running_loop() is not self._loop:
            self._enter()
        return drive(flow, self._send, self._sleep, self._listen)


def _blocking(store: AsyncStore) -> Store | None:
    """The same store for blocking calls, where it can be had: of one that was made from a URL."""
    make: Any = getattr(store, "blocking", None)
    made: Store | None = make() if make else None
    return made


def _end(limiter: weakref.ref[AsyncLimiter], worker: _Worker | thread.Worker) -> None:
    """At the interpreter's exit: there is no loop any more, so what is waiting is sent by blocking calls."""
    left = limiter()
    if isinstance(worker, thread.Worker):
        worker.stop()
    if left is None or left._closed:
        return
    left._closed = True
    upkeep = left._flows.upkeep
    for permit in upkeep.held():
        left._flows.finish_later(permit)
    if isinstance(worker, thread.Worker):
        worker.close()
    elif len(upkeep.backlog) and (store := _blocking(left._store)):
        thread.drive(upkeep.drain(), store, time.sleep)
        store.close()


class _Acquisition(AbstractAsyncContextManager[AsyncPermit]):
    """What `acquire` returns: does its work on entering the block."""

    __slots__ = ("_args", "_limiter", "_on_error", "_permit")

    def __init__(
        self, limiter: AsyncLimiter, limits: tuple[Asked, ...], id: str | None, wait: float | None, on_error: OnError
    ) -> None:
        self._limiter = limiter
        self._args = (limits, id, wait)
        self._on_error = on_error

    async def __aenter__(self) -> AsyncPermit:
        limiter, (limits, id, wait) = self._limiter, self._args
        flows = limiter._flows
        ready = get_running_loop() is limiter._loop and not limiter._closed
        if not ready or (straight := flows.straight(limits, id, wait)) is None:
            permit = (await limiter._run(flows.acquire(limits, id, wait))).require()
        else:
            # As in try_acquire, and not through it: a decision and a frame more cost a twentieth of all there is.
            parts, own, call, began = straight
            decision = None
            try:
                record = await limiter._send(call)
            except BaseException as error:
                if (decision := flows.unanswered(parts, own, error, began)) is None:
                    raise
            permit = flows.permit(parts, own, record, began) if decision is None else decision.require()
        self._permit = permit
        permit.on_error = self._on_error
        return permit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        limiter, permit = self._limiter, self._permit
        flows = limiter._flows
        ready = error is None and get_running_loop() is limiter._loop and not limiter._closed
        if not ready or (call := flows.ending(permit)) is None:
            await permit.__aexit__(kind, error, trace)
            return
        # As in _finish, and not through it, for the same reason.
        try:
            reply = await limiter._send(call)
        except Exception as trouble:  # noqa: BLE001  # as a permit's own block does
            if flows.unended(permit, trouble) is None:
                not_finished(permit, trouble)
        except BaseException as trouble:
            flows.unended(permit, trouble)
            raise
        else:
            flows.ended(permit, reply)
