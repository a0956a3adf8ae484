"""What a scene is: one kind of work, and everybody who does it or the nearest they can."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from bench import clients
from bench.beside import Worker
from bench.clients import NAMES, PATIENCE, Execute
from bench.places import Place
from bench.rounds import Load, Step, loaded, repeated
from pyslot import AsyncLimiter, Limiter

MUCH = 10**9
TASKS = 64
CLIENTS = tuple(NAMES)

Contestant: TypeAlias = Callable[[], Awaitable[Load]]
Contestants: TypeAlias = dict[str, Contestant]
Curve: TypeAlias = dict[str, list[float]]
"""A size -> the figures of all rounds."""


class Size(NamedTuple):
    """How much is measured."""

    servers: tuple[str, ...]
    clusters: tuple[str, ...]
    rounds: int
    seconds: float
    """How long each load lasts in each round."""


class Run(NamedTuple):
    """A scene's work on one place. What is opened here is closed behind the scene."""

    place: Place
    litellm: Worker | None
    size: Size
    stack: AsyncExitStack

    async def limiter(self, client: str, **options: Any) -> AsyncLimiter:  # noqa: ANN401  # AsyncLimiter's
        made = AsyncLimiter(self.place.url(client), deadline=PATIENCE, **options)
        return await self.stack.enter_async_context(made)

    def blocking_limiter(self, client: str) -> Limiter:
        url = "memory://" if client == "memory" else self.place.url(client)
        return self.stack.enter_context(Limiter(url, deadline=PATIENCE))

    async def bare(self, client: str) -> Execute:
        return await clients.concurrent(client, self.place, self.stack)

    def blocking_bare(self, client: str) -> Execute:
        return clients.blocking(client, self.place, self.stack)

    def litellm_does(self, what: str) -> Contestants:
        """The same number of tasks in LiteLLM's own process, while this one waits."""
        if self.litellm is None:
            return {}
        load, seconds = self.litellm.load, self.size.seconds
        return {"LiteLLM": lambda: asyncio.to_thread(load, what, tasks=TASKS, seconds=seconds)}

    def tasks(self, step: Step) -> Contestant:
        """Many tasks that repeat a step.

        One step goes ahead. A cluster's client learns its nodes in it: where many ask a cold one of redis-py 8.1 at
        once, it closes connections that are in use.
        """

        async def load() -> Load:
            await step()
            return await loaded(step, tasks=TASKS, seconds=self.size.seconds)

        return load

    def alone(self, step: Callable[[], object]) -> Contestant:
        """One caller that repeats a step that blocks. It needs less time to be steady than many tasks."""
        return lambda: repeated(step, seconds=self.size.seconds / 2)


class Where(Enum):
    SERVER = "a server"
    CLUSTER = "a cluster"
    HERE = "no server"


class Scene(NamedTuple):
    """Loads, shown as bars."""

    name: str
    says: str
    """What a step is, in a sentence or two."""
    contestants: Callable[[Run], Awaitable[Contestants]]
    where: tuple[Where, ...] = (Where.SERVER,)
    longer: float = 1
    """Its loads take so many times as long as others': where a step is slow, few would make no p99."""


class Curves(NamedTuple):
    """Figures against a size, shown as lines; on single servers only."""

    name: str
    says: str
    unit: str
    measure: Callable[[Place, Worker | None, int], dict[str, dict[str, Curve]]]
    """(place, litellm, rounds) -> what grows -> whose -> its curve."""


def ids() -> Iterator[bytes]:
    """Permit ids as the library makes them: 12 characters and a number."""
    return (b"abcdefghijkl%x" % n for n in range(MUCH))
