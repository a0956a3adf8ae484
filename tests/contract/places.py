"""Where the contract is tested: the table of stores, time that tests drive, and trouble that they make."""

# ruff: noqa: ANN401 - options of either limiter

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyslot import AsyncLimiter, Limiter
from pyslot.adapters.base import AsyncStore
from pyslot.loader import Call
from tests.contract.backings import AnyStore, Backing, Kept, Memory, Served
from tests.contract.facade import Facade
from tests.contract.wire import step

GetNodes = Callable[[str], Any]
START = 1_700_000_000_000
"""When driven time begins; round in decimal, where a server might write a number with an exponent."""


class Row(NamedTuple):
    """One store: a line of the table."""

    server: str
    scheme: str = ""
    blocking: bool = True

    def __str__(self) -> str:
        return "-".join(filter(None, (self.server, self.scheme, "sync" if self.blocking else "async")))

    def backing(self, get_server: GetNodes, get_cluster: GetNodes) -> Backing:
        """What it keeps its data in."""
        if self.server == "memory":
            return Memory()
        cluster = "cluster" in self.scheme
        nodes = (get_cluster if cluster else get_server)(self.server)
        return Served(f"{self.scheme}://{nodes.address}", nodes.masters if cluster else [nodes])


PLACES = (
    Row("memory", "", True),
    Row("memory", "", False),
    Row("redis-6.2", "redis", True),
    Row("redis-6.2", "redis", False),
    Row("redis-7.0", "redis", False),
    Row("redis-8.2", "redis", True),
    Row("redis-8.2", "redis", False),
    Row("valkey-8.1", "valkey", True),
    Row("valkey-9.1", "valkey", True),
    Row("valkey-9.1", "valkey", False),
    Row("redis-8.2", "redis+cluster", True),
    Row("redis-8.2", "redis+cluster", False),
    Row("valkey-9.1", "valkey+cluster", True),
    Row("valkey-9.1", "valkey+cluster", False),
    Row("redis-6.2", "glide", True),
    Row("valkey-9.1", "glide", False),
    Row("valkey-9.1", "glide+cluster", True),
    Row("redis-8.2", "glide+cluster", False),
)
ASYNC = [row for row in PLACES if not row.blocking]


@dataclass
class Fault:
    """What becomes of some calls."""

    script: str
    tag: bytes
    """Part of the call's first key."""
    left: int
    """How many calls it meets yet."""
    error: BaseException | None
    """None: there is never an answer."""
    lost: bool
    """True where the call has its effect, and only the answer is lost."""


@dataclass
class Tap:
    """Before a store: stamps driven time on calls, keeps a record of them, and lets some fail."""

    store: Any
    backing: Backing
    now: int | None = START
    """Milliseconds; None leaves time to the server."""
    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def fail(
        self, script: str = "", tag: str = "", *, times: int = 1, error: BaseException | None, lost: bool = False
    ) -> None:
        """Let the next calls of a step (`wire.step`), over keys of a hash tag, fail."""
        self.faults.append(Fault(script, tag.encode(), times, error, lost))

    def _take(self, call: Call) -> tuple[Call, Fault | None]:
        self.calls.append(call)
        met = None
        for fault in self.faults:
            if fault.left and fault.script in ("", step(call)) and fault.tag in call.keys[0]:
                fault.left -= 1
                met = fault
                break
        if self.now is not None and call.head:
            call = call._replace(head=(b"%d" % self.now, *call.head[1:]))
        return call, met

    def _check(self, call: Call, reply: Sequence[int]) -> list[int]:
        immortal = [key for key, kept in self.backing.look(call.keys[0]).items() if kept.ttl <= 0]
        assert not immortal, f"keys without a time to live: {immortal}"
        assert all(type(item) is int for item in reply), f"not only integers: {reply}"
        return list(reply)


class SyncTap(Tap):
    @property
    def cluster(self) -> bool:
        return bool(self.store.cluster)

    def run(self, call: Call) -> list[int]:
        call, fault = self._take(call)
        if fault and not fault.lost and fault.error:
            raise fault.error
        reply = self._check(call, self.store.run(call))
        if fault and fault.error:
            raise fault.error
        return reply

    def close(self) -> None:
        """The place closes its store, for several limiters may use it."""


class AsyncTap(Tap):
    @property
    def cluster(self) -> bool:
        return bool(self.store.cluster)

    async def run(self, call: Call) -> list[int]:
        call, fault = self._take(call)
        reply = []
        if not fault or fault.lost:
            reply = self._check(call, await self.store.run(call))
        if fault and fault.error:
            raise fault.error
        if fault:
            await asyncio.Event().wait()
        return reply

    async def aclose(self) -> None: ...


class Place:
    """One store in one colour."""

    def __init__(self, backing: Backing, *, blocking: bool, store: AnyStore | None = None) -> None:
        """`store`: one over this backing, which others use after this place."""
        self.backing = backing
        self.blocking = blocking
        self.store = store or backing.open(blocking)
        self._shared = store is not None
        self.tap = (SyncTap if blocking else AsyncTap)(self.store, backing)
        self._limiters: list[Facade] = []

    @property
    def now(self) -> int:
        assert self.tap.now is not None
        return self.tap.now

    @now.setter
    def now(self, value: int | None) -> None:
        self.tap.now = value

    @property
    def calls(self) -> list[Call]:
        return self.tap.calls

    async def run(self, call: Call) -> list[int]:
        """A script call at the driven time."""
        reply: Any = self.tap.run(call)
        return list(await reply if inspect.isawaitable(reply) else reply)

    def limiter(self, **options: Any) -> Facade:
        # Without a breaker: a fault is one call's here, and no probe comes in between.
        options = {"breaker": False, **options}
        limiter = Facade((Limiter if self.blocking else AsyncLimiter)(self.tap, **options))
        self._limiters.append(limiter)
        return limiter

    def contents(self) -> dict[str, object]:
        return {key: kept.content for key, kept in self.look().items()}

    def look(self) -> dict[str, Kept]:
        return self.backing.look()

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait for what goes on in the background."""
        async with asyncio.timeout(10):
            while not done():  # noqa: ASYNC110 - there is nothing to be told by
                await asyncio.sleep(0.002)

    async def close(self) -> None:
        for limiter in self._limiters:
            await limiter.close()
        if self._shared:
            return
        await close(self.store)
        self.backing.close()


async def close(store: AnyStore) -> None:
    if isinstance(store, AsyncStore):
        await store.aclose()
    else:
        store.close()
