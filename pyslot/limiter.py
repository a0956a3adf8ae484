"""The synchronous shell: drives flows by blocking."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self, TypeVar, cast

from pyslot.adapters.base import Store, open_store
from pyslot.calls import Parts
from pyslot.decision import Decision, Status
from pyslot.errors import UsageError
from pyslot.flows import Flow, Flows, check_deadline, check_on_error
from pyslot.hooks import Hooks, guarded
from pyslot.keys import Naming
from pyslot.kinds import Asked, Charge, Limit, Slots, Window
from pyslot.lines import Listen
from pyslot.outage import Fallback, Policy
from pyslot.permit import OnError, Permit
from pyslot.renewer import OnLost, Sleep, Upkeep

T = TypeVar("T")


def _listen(step: Listen) -> None:
    cast(threading.Event, step.bell).wait(step.seconds)


class Limiter:
    """Keeps this process, and every other that uses the same server, inside shared limits.

    Safe to share between threads. For asyncio there is `AsyncLimiter`, with the same names.
    """

    # Time comes in here, so that tests of services can drive it: see pyslot.testing.
    _monotonic: Callable[[], float] = staticmethod(time.monotonic)
    _wall: Callable[[], float] = staticmethod(time.time)
    _sleep: Callable[[float], object] = staticmethod(time.sleep)
    _listen: Callable[[Listen], object] = staticmethod(_listen)

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
    ) -> None:
        """
        target: a store URL such as "redis://localhost:6379", or a synchronous redis-py or valkey-py client. A client
            that is passed in stays as it is and is never closed.
        prefix: what every key starts with.
        hash_names: store the SHA-256 of subjects in place of the subjects, where those are secrets.
        group_by_slot: send one call for each hash slot; None does so on a cluster. True is for proxies in front of one.
        deadline: seconds within which each call on the server has answered or failed.
        on_outage: what to do when the server can't be reached: "raise", "closed", "open" or `Local(share)`.
        on_lost: what to do with permits whose slots were lost: "rejoin" the gauge, or "stop" renewing.
        hooks: who is told what happens here, for logs and metrics.
        """
        naming = Naming(prefix, hash_names=hash_names)
        fallback = Fallback.make(on_outage, self._wall)
        listening = guarded(hooks)
        upkeep = Upkeep(self._monotonic, deadline=check_deadline(deadline), on_lost=on_lost, hooks=listening)
        self._store = open_store(target, deadline)
        self._flows = Flows(
            naming,
            upkeep,
            self._permit,
            clock=self._monotonic,
            group=self._store.cluster if group_by_slot is None else group_by_slot,
            fallback=fallback,
            hooks=listening,
            make_bell=threading.Event,
        )
        self._worker = self._work(upkeep)
        self._closed = False
        weakref.finalize(self, self._worker.stop).atexit = False

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
        return _Acquisition(self, limits, id, wait, check_on_error(on_error))

    def try_acquire(self, *limits: Asked, id: str | None = None, wait: float | None = None) -> Decision[Permit]:
        """Take all limits or none, and say which: a refusal is a false `Decision`, not an exception.

        `id` is the caller's own name for the permit, at most 128 bytes: asking again under the same id holds once.
        """
        return self._run(self._flows.acquire(limits, id, wait))

    def charge(self, *charges: Charge | Window) -> Decision[Permit]:
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

    def close(self) -> None:
        """Send what is still waiting, for at most `deadline`, stop renewing, and close what was opened here."""
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

    def _permit(self, id: str, wire_id: bytes, parts: Parts) -> Permit:
        return Permit(self, id, wire_id, parts)

    def _run(self, flow: Flow[T]) -> T:
        if self._closed:
            flow.close()
            raise UsageError("this limiter is closed: make a new one")
        return drive(flow, self._store, self._sleep, self._listen)


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
        limiter = self._limiter
        self._permit = limiter._run(limiter._flows.acquire(*self._args)).require()
        self._permit.on_error = self._on_error
        return self._permit

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._permit.__exit__(kind, error, trace)


class _Worker:
    """The daemon thread behind a limiter; started when there is something to do."""

    def __init__(self, upkeep: Upkeep, store: Store) -> None:
        self._upkeep = upkeep
        self._store = store
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stopped = False
        upkeep.wake = self._wake

    def _wake(self) -> None:
        if self._thread is None and not self._stopped:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="pyslot-upkeep", daemon=True)
                    self._thread.start()
        self._woken.set()

    def _work(self) -> None:
        drive(self._upkeep.run(lambda: self._stopped), self._store, self._pause)

    def _pause(self, seconds: float) -> None:
        self._woken.wait(seconds)
        self._woken.clear()

    def stop(self) -> None:
        self._stopped = True
        self._woken.set()

    def close(self) -> None:
        self.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        drive(self._upkeep.drain(), self._store, self._pause)


def drive(
    flow: Flow[T],
    store: Store,
    sleep: Callable[[float], object],
    listen: Callable[[Listen], object] = _listen,
) -> T:
    """Run a flow to its end, blocking."""
    try:
        step = next(flow)
        while True:
            try:
                reply: Sequence[int] = ()
                if isinstance(step, Sleep):
                    sleep(step.seconds)
                elif isinstance(step, Listen):
                    listen(step)
                else:
                    reply = store.run(step)
            except BaseException as error:  # noqa: BLE001  # the flow must hear of a cancellation too; it raises again
                step = flow.throw(error)
            else:
                step = flow.send(reply)
    except StopIteration as stop:
        result: T = stop.value
        return result
