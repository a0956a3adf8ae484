"""The asynchronous shell: drives flows by awaiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Self, TypeAlias, TypeVar, cast

from pyslot.adapters.base import open_async_store
from pyslot.calls import Parts
from pyslot.coalesce import Coalescer
from pyslot.decision import Decision, Status
from pyslot.errors import UsageError
from pyslot.flows import Flow, Flows, check_deadline, check_on_error
from pyslot.hooks import Hooks, guarded
from pyslot.keys import Naming
from pyslot.kinds import Asked, Charge, Limit, Slots, Window
from pyslot.lines import Listen
from pyslot.loader import Call
from pyslot.outage import Fallback, Policy
from pyslot.permit import AsyncPermit, OnError
from pyslot.renewer import OnLost, Sleep, Upkeep

T = TypeVar("T")
Run: TypeAlias = Callable[[Call], Awaitable[Sequence[int]]]


async def _listen(step: Listen) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(step.seconds):
            await cast(asyncio.Event, step.bell).wait()


class AsyncLimiter:
    """Keeps this process, and every other that uses the same server, inside shared limits.

    Belongs to the event loop it is first used on. Without asyncio there is `Limiter`, with the same names.
    """

    # Time comes in here, so that tests of services can drive it: see pyslot.testing.
    _monotonic: Callable[[], float] = staticmethod(time.monotonic)
    _wall: Callable[[], float] = staticmethod(time.time)
    _sleep: Callable[[float], Awaitable[object]] = staticmethod(asyncio.sleep)
    _listen: Callable[[Listen], Awaitable[object]] = staticmethod(_listen)

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
    ) -> None:
        """
        target: a store URL such as "redis://localhost:6379", or an asyncio client of redis-py or valkey-py. A client
            that is passed in stays as it is and is never closed.
        prefix: what every key starts with.
        hash_names: store the SHA-256 of subjects in place of the subjects, where those are secrets.
        group_by_slot: send one call for each hash slot; None does so on a cluster. True is for proxies in front of one.
        deadline: seconds within which each call on the server has answered or failed.
        on_outage: what to do when the server can't be reached: "raise", "closed", "open" or `Local(share)`.
        on_lost: what to do with permits whose slots were lost: "rejoin" the gauge, or "stop" renewing.
        hooks: who is told what happens here, for logs and metrics.
        coalesce: calls that wait for the server together travel together. False sends each by itself, for debugging.
        """
        naming = Naming(prefix, hash_names=hash_names)
        fallback = Fallback.make(on_outage, self._wall)
        listening = guarded(hooks)
        upkeep = Upkeep(self._monotonic, deadline=check_deadline(deadline), on_lost=on_lost, hooks=listening)
        self._store = open_async_store(target, deadline)
        self._flows = Flows(
            naming,
            upkeep,
            self._permit,
            clock=self._monotonic,
            group=self._store.cluster if group_by_slot is None else group_by_slot,
            fallback=fallback,
            hooks=listening,
            make_bell=asyncio.Event,
        )
        self._coalescer = Coalescer(self._store, deadline)
        self._send = self._coalescer.run if coalesce else self._store.run
        self._worker = self._work(upkeep)
        self._closed = False

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
        return _Acquisition(self, limits, id, wait, check_on_error(on_error))

    async def try_acquire(
        self, *limits: Asked, id: str | None = None, wait: float | None = None
    ) -> Decision[AsyncPermit]:
        """Take all limits or none, and say which: a refusal is a false `Decision`, not an exception.

        `id` is the caller's own name for the permit, at most 128 bytes: asking again under the same id holds once.
        """
        return await self._run(self._flows.acquire(limits, id, wait))

    async def charge(self, *charges: Charge | Window) -> Decision[AsyncPermit]:
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

    async def aclose(self) -> None:
        """Send what is still waiting, for at most `deadline`, stop renewing, and close what was opened here."""
        if not self._closed:
            self._closed = True
            await self._worker.aclose()
            await self._coalescer.aclose()
            await self._store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"<AsyncLimiter {self._flows.naming.prefix!r} on {self._store!r}{closed}>"

    def _work(self, upkeep: Upkeep) -> _Worker:
        return _Worker(upkeep, self._coalescer.run_late)

    def _permit(self, id: str, wire_id: bytes, parts: Parts) -> AsyncPermit:
        return AsyncPermit(self, id, wire_id, parts)

    async def _run(self, flow: Flow[T]) -> T:
        if self._closed:
            flow.close()
            raise UsageError("this limiter is closed: make a new one")
        return await drive(flow, self._send, self._sleep, self._listen)


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
        limiter = self._limiter
        self._permit = (await limiter._run(limiter._flows.acquire(*self._args))).require()
        self._permit.on_error = self._on_error
        return self._permit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._permit.__aexit__(kind, error, trace)


class _Worker:
    """The task behind a limiter; started when there is something to do."""

    def __init__(self, upkeep: Upkeep, run: Run) -> None:
        self._upkeep = upkeep
        self._run = run
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        upkeep.wake = self._wake

    def _wake(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work(), name="pyslot-upkeep")
        self._woken.set()

    async def _work(self) -> None:
        await drive(self._upkeep.run(), self._run, self._pause)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await drive(self._upkeep.drain(), self._run, asyncio.sleep)


async def drive(
    flow: Flow[T],
    run: Run,
    sleep: Callable[[float], Awaitable[object]],
    listen: Callable[[Listen], Awaitable[object]] = _listen,
) -> T:
    """Run a flow to its end, awaiting."""
    try:
        step = next(flow)
        while True:
            try:
                reply: Sequence[int] = ()
                if isinstance(step, Sleep):
                    await sleep(step.seconds)
                elif isinstance(step, Listen):
                    await listen(step)
                else:
                    reply = await run(step)
            except BaseException as error:  # noqa: BLE001  # the flow must hear of a cancellation too; it raises again
                step = flow.throw(error)
            else:
                step = flow.send(reply)
    except StopIteration as stop:
        result: T = stop.value
        return result
