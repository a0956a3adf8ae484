"""The stores over redis-py and valkey-py, blocking and asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeAlias, cast

from pyslot.adapters.base import Land, words
from pyslot.adapters.resp_bounds import clock
from pyslot.adapters.resp_direct import AsyncLine, Landed, Line
from pyslot.adapters.resp_errors import ErrorTable, Recovery, Verdict, WrongType, wrong_type
from pyslot.errors import UsageError
from pyslot.loader import Call

Client: TypeAlias = Any
"""A client object of either library; their own annotations differ between versions."""


class Made(NamedTuple):
    """A client, and what is known of it."""

    client: Client
    where: str
    """The server's address, and nothing else: what may be shown."""
    cluster: bool
    owned: Sequence[Client]
    """What is to be closed; empty for a client that was passed in."""
    line: Any = None
    """A `Line` or an `AsyncLine` to its connections; None where every call goes through the client."""

    @property
    def execute(self) -> Any:  # noqa: ANN401 - of either colour
        """Sends whatever is no first try: through the client, unless connections are kept from it."""
        return self.line.ask if self.line and self.line.keeps else self.client.execute_command

    @property
    def renews(self) -> bool:
        """True where it is for us to close what a pool has connected to a master that is none any more."""
        return bool(self.owned) and not self.cluster and not (self.line and self.line.keeps)

    @property
    def drops(self) -> int:
        """How many dropped connections to put up with: a client that was passed in may have tries of its own."""
        return int(bool(self.owned or self.line))


Make: TypeAlias = Callable[[], Made]


def _place(made: Made, hash_slot: int) -> str | None:
    """Which node of a cluster has a hash slot now, as far as the client knows; None for a server of its own."""
    if not made.cluster:
        return None
    client = made.client.client if isinstance(made.client, LazyCluster) else made.client
    nodes = client.nodes_manager.slots_cache.get(hash_slot) if client is not None else None
    return str(nodes[0].name) if nodes else None


class RespStore:
    """Runs scripts through a blocking client, by the lowest of its calls that is public."""

    def __init__(self, made: Made, table: ErrorTable, deadline: float, make: Make | None = None) -> None:
        """`make`: makes the client anew; None for one that was passed in."""
        self.cluster = made.cluster
        self._table = table
        self._deadline = deadline
        self._make = make
        self._parents: list[Made] = []
        self._use(made)

    def _use(self, made: Made) -> None:
        self._made = made
        self._client = made.client
        line: Line | None = made.line
        self._first = line.run if line else self._by_client
        self._execute: Callable[..., Sequence[int]] = made.execute
        self._where = made.where
        self._owned = made.owned

    def place(self, hash_slot: int) -> str | None:
        return _place(self._made, hash_slot)

    def after_fork(self) -> None:
        """The parent's connections are the parent's. A client that was passed in looks after that itself."""
        if self._make:
            self._parents.append(self._made)  # kept, for its end might touch what both processes share
            self._use(self._make())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._where}>"

    def _by_client(self, call: Call) -> Sequence[int]:
        return self._execute(*words("EVALSHA", call.script.sha, call))

    def run(self, call: Call) -> Sequence[int]:
        began = monotonic()
        if self._owned:  # the connections of our own clients look at it
            clock.end = began + self._deadline
        try:
            return self._first(call)
        except Exception as error:  # noqa: BLE001 - the table knows which, and raises the others
            return self._recover(call, error, began)
        finally:
            if self._owned:
                clock.end = inf

    def close(self) -> None:
        for client in self._owned:
            client.close()

    def _recover(self, call: Call, error: Exception, began: float) -> Sequence[int]:
        recovery = Recovery(call, self._where, began, self._deadline, drops=self._made.drops, owned=bool(self._owned))
        while True:
            verdict = self._table.judge(error)
            if verdict is Verdict.READONLY and self._made.renews:
                self._client.connection_pool.disconnect()
            try:
                pause = recovery.next(error, verdict)
            except WrongType:
                raise wrong_type(self._where, call, self._types(call.keys)) from error
            if pause:
                sleep(pause)
            try:
                return self._execute(*recovery.words)
            except Exception as again:  # noqa: BLE001 - as above
                error = again

    def _types(self, keys: Sequence[bytes]) -> list[str | bytes]:
        types: list[Any] = []
        if self._owned:
            clock.end = monotonic() + self._deadline
        with suppress(Exception):
            for key in keys:
                types.append(self._execute("TYPE", key))  # noqa: PERF401 - keep what came before a failure
        return types


class AsyncRespStore:
    """The same through an asyncio client."""

    def __init__(
        self,
        made: Made,
        table: ErrorTable,
        deadline: float,
        make: Make | None = None,
        blocking: Callable[[], RespStore] | None = None,
    ) -> None:
        """`blocking`: makes the same store for blocking calls."""
        self.cluster = made.cluster
        self._table = table
        self._deadline = deadline
        self._make = make
        self._blocking = blocking
        self._parents: list[Made] = []
        self._use(made)

    def _use(self, made: Made) -> None:
        self._made = made
        self._client = made.client
        line: AsyncLine | None = made.line
        self._execute: Callable[..., Awaitable[Sequence[int]]] = made.execute
        self._first: Callable[[Call], Awaitable[Sequence[int]]] = line.run if line else self._by_client
        self._many: Callable[[Sequence[Call], Landed], Awaitable[None]] = line.run_many if line else self._pipeline
        if made.cluster:
            self._first = self._by_new_client
            self._lock = asyncio.Lock()
        self._where = made.where
        self._owned = made.owned

    def place(self, hash_slot: int) -> str | None:
        return _place(self._made, hash_slot)

    def blocking(self) -> RespStore | None:
        """The same for blocking calls; None where a client was passed in."""
        return self._blocking and self._blocking()

    def next_loop(self) -> None:
        """The loop has ended to which the connections belong."""
        if self._make:
            self._use(self._make())

    def after_fork(self) -> None:
        """The connections belong to the parent's loop; even to close them here would disturb it."""
        self._parents.append(self._made)
        if self._make:
            self._use(self._make())
        else:
            self._execute = self._first = self._many = _forked

    __repr__ = RespStore.__repr__

    async def _by_client(self, call: Call) -> Sequence[int]:
        return await self._execute(*words("EVALSHA", call.script.sha, call))

    async def _by_new_client(self, call: Call) -> Sequence[int]:
        """A cluster's client learns its nodes before many use it: asked by many at once, that of redis-py 8.1 closes
        connections while they are in use."""
        async with self._lock:
            if self._first == self._by_new_client:
                await self._client.initialize()
                self._first = self._by_client
        return await self._by_client(call)

    async def _pipeline(self, calls: Sequence[Call], landed: Landed) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for call in calls:
            pipeline.execute_command(*words("EVALSHA", call.script.sha, call))
        for reply in await pipeline.execute(raise_on_error=False):
            landed(reply)

    async def run(self, call: Call) -> Sequence[int]:
        began = monotonic()
        task = cast(asyncio.Task[object], asyncio.current_task())
        cancels = task.cancelling()
        try:
            # From outside, for any client: both libraries drop a connection whose call is cancelled.
            async with asyncio.timeout(self._deadline):
                reply = await self._first(call)
        except Exception as error:  # noqa: BLE001 - the table knows which, and raises the others
            reply = await self._recover(call, error, began)
        # Before Python 3.12 asyncio.wait_for, under a client with a socket_timeout, may swallow a cancellation.
        if task.cancelling() > cancels:
            raise asyncio.CancelledError
        return reply

    async def run_many(self, calls: Sequence[Call], land: Land) -> None:
        """Run calls in one pipeline. Each that fails is taken up again by itself, as `run` would."""
        began = monotonic()
        at = 0
        failed: list[tuple[int, Exception]] = []

        def landed(reply: Sequence[int] | Exception) -> None:
            nonlocal at
            if isinstance(reply, Exception):
                failed.append((at, reply))
            else:
                land(at, reply)
            at += 1

        try:
            async with asyncio.timeout(self._deadline):
                await self._many(calls, landed)
        except Exception as error:  # noqa: BLE001 - as above
            failed += [(unanswered, error) for unanswered in range(at, len(calls))]
        for again, trouble in failed:
            try:
                land(again, await self._recover(calls[again], trouble, began))
            except Exception as final:  # noqa: BLE001 - each caller's own, for the others may fare better
                land(again, final)

    async def aclose(self) -> None:
        for client in self._owned:
            await client.aclose()

    async def _recover(self, call: Call, error: Exception, began: float) -> Sequence[int]:
        recovery = Recovery(call, self._where, began, self._deadline, drops=self._made.drops, owned=bool(self._owned))
        while True:
            verdict = self._table.judge(error)
            if verdict is None and isinstance(error, RuntimeError) and "loop" in str(error):
                raise UsageError(
                    "this limiter's client belongs to an event loop that has ended: "
                    "make both anew on this loop, or give the limiter a URL"
                ) from error
            if verdict is Verdict.READONLY and self._made.renews:
                await self._client.connection_pool.disconnect(inuse_connections=False)
            try:
                pause = recovery.next(error, verdict)
            except WrongType:
                raise wrong_type(self._where, call, await self._types(call.keys)) from error
            if pause:
                await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(recovery.left):
                    return await self._execute(*recovery.words)
            except Exception as again:  # noqa: BLE001 - as above
                error = again

    async def _types(self, keys: Sequence[bytes]) -> list[str | bytes]:
        types: list[Any] = []
        with suppress(Exception):
            async with asyncio.timeout(self._deadline):
                for key in keys:
                    types.append(await self._execute("TYPE", key))  # noqa: PERF401 - as above
        return types


def _forked(*_: object) -> Awaitable[Any]:
    raise UsageError(
        "this limiter's client was made before a fork, and belongs to the parent's event loop: "
        "make both anew in every process, or give the limiter a URL"
    )


class LazyCluster:
    """A blocking cluster client connects while it is made; a service must be able to start before its server."""

    def __init__(self, make: Callable[[], Client], deadline: float) -> None:
        self._make = make
        self._deadline = deadline
        self._lock = threading.Lock()
        self.client: Client = None

    def connected(self) -> Client:
        return self.client or self._connect()

    def execute_command(self, *args: object) -> Client:
        return self.connected().execute_command(*args)

    def close(self) -> None:
        if self.client is not None:
            self.client.close()

    def _connect(self) -> Client:
        if not self._lock.acquire(timeout=self._deadline):
            raise TimeoutError  # others wait for the same server; to queue behind each of them would add up
        try:
            if self.client is None:
                self.client = self._make()
            return self.client
        finally:
            self._lock.release()
