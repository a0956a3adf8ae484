"""Flows driven by awaiting, and the task that does so behind a limiter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeAlias, TypeVar, cast

from pyslot.ends import Flow
from pyslot.lines import Listen
from pyslot.loader import Call
from pyslot.renewer import Sleep, Upkeep

T = TypeVar("T")
Run: TypeAlias = Callable[[Call], Awaitable[Sequence[int]]]


async def listen(step: Listen) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(step.seconds):
            await cast(asyncio.Event, step.bell).wait()


async def drive(
    flow: Flow[T],
    run: Run,
    sleep: Callable[[float], Awaitable[object]],
    listen: Callable[[Listen], Awaitable[object]] = listen,
) -> T:
    """Run a flow to its end, awaiting."""
    try:
        step = next(flow)
        while True:
            try:
                reply: Sequence[int] = ()
                if isinstance(step, Call):
                    reply = await run(step)
                elif isinstance(step, Sleep):
                    await sleep(step.seconds)
                else:
                    await listen(step)
            except BaseException as error:  # noqa: BLE001  # the flow must hear of a cancellation too; it raises again
                step = flow.throw(error)
            else:
                step = flow.send(reply)
    except StopIteration as stop:
        result: T = stop.value
        return result


class Worker:
    """The task behind a limiter; started when there is something to do, and once on every loop."""

    def __init__(self, upkeep: Upkeep, run: Run, deadline: float) -> None:
        self._upkeep = upkeep
        self._run = run
        self._deadline = deadline
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        upkeep.wake = self._wake

    def _wake(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Called by no task: by the collection of garbage, or between two loops.
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._wake)
            return
        if self._task is None or self._task.done() or loop is not self._loop:
            if self._closed:
                return
            self._loop, self._woken = loop, asyncio.Event()
            self._task = loop.create_task(self._work(), name="pyslot-upkeep")
        self._woken.set()

    async def _work(self) -> None:
        try:
            await drive(self._upkeep.run(), self._run, self._pause)
        except asyncio.CancelledError:
            if not self._closed:
                await self._last_call()
            raise

    async def _last_call(self) -> None:
        """The loop is about to end, and with it cancels all tasks: wait for what they leave behind, and send it."""
        me, loop = cast(asyncio.Task[object], asyncio.current_task()), asyncio.get_running_loop()
        end = loop.time() + self._deadline
        while any(task.cancelling() for task in asyncio.all_tasks() - {me}) and loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(end):
                await drive(self._upkeep.drain(), self._run, asyncio.sleep)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    async def aclose(self) -> None:
        """Stop, and send what is waiting, for at most the deadline."""
        self._closed = True
        if self._task is not None and self._loop is asyncio.get_running_loop():
            self._task.cancel()
            if self._task is not asyncio.current_task():  # it may be, in a hook or in on_lost
                await asyncio.wait([self._task])
        with suppress(TimeoutError):
            async with asyncio.timeout(self._deadline):
                await drive(self._upkeep.drain(), self._run, asyncio.sleep)

    def after_fork(self) -> None:
        """The loop is the parent's."""
        self._loop = None
        self._task = None
