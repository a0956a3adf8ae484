"""The clients under attack: each library in both colours, given by URL or passed in with retries of its own."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import redis.asyncio.retry
import redis.backoff
import redis.retry
import valkey.asyncio.retry
import valkey.backoff
import valkey.retry

from pyslot import AsyncLimiter, Limiter
from tests.adapters.helpers import KINDS, Kind, close_client
from tests.contract.facade import Facade

RETRIES = 4
PATIENCE = 0.1
"""Seconds a passed client waits for a reply before it sends the same again."""
DEADLINE = 1.0


class Way(NamedTuple):
    """One way of giving a limiter its client."""

    kind: Kind
    passed: bool

    def __str__(self) -> str:
        return f"{self.kind}-{'passed' if self.passed else 'url'}"


ALL_WAYS = tuple(Way(kind, passed) for passed in (True, False) for kind in KINDS)
THOROUGH = os.environ.get("PYSLOT_PROOF") == "all"
"""The long form (`make proof`)."""
WAYS = ALL_WAYS if THOROUGH else (ALL_WAYS[0], ALL_WAYS[3], ALL_WAYS[5], ALL_WAYS[6])
"""Normally each library, each colour, and both kinds of targets, in pairs."""
FEW_WAYS = WAYS if THOROUGH else (ALL_WAYS[1], ALL_WAYS[6])
"""For tests that wait for time-outs."""


def retrying(kind: Kind, port: int) -> Any:  # noqa: ANN401 - a client of either library
    """A client that sends again by itself what was not answered."""
    # valkey-py waits for socket_connect_timeout when it closes, too, and raises where that is not enough.
    options: dict[str, Any] = {"port": port, "socket_timeout": PATIENCE, "socket_connect_timeout": 5.0}
    if kind.library == "redis":
        make: Any = redis.retry.Retry if kind.blocking else redis.asyncio.retry.Retry
        retry = make(redis.backoff.NoBackoff(), RETRIES)
    else:
        make = valkey.retry.Retry if kind.blocking else valkey.asyncio.retry.Retry
        retry = make(valkey.backoff.NoBackoff(), RETRIES)
        errors = valkey.exceptions
        options |= {"retry_on_timeout": True, "retry_on_error": [errors.ConnectionError, errors.TimeoutError]}
    return kind.client(retry=retry, **options)


@asynccontextmanager
async def target(way: Way, port: int) -> AsyncIterator[Any]:
    """What a limiter, or a store, is made from."""
    if not way.passed:
        yield way.kind.url(f"127.0.0.1:{port}")
        return
    client = retrying(way.kind, port)
    try:
        yield client
    finally:
        await close_client(client)


@asynccontextmanager
async def limiter(way: Way, port: int, **options: Any) -> AsyncIterator[Facade]:  # noqa: ANN401 - of either limiter
    """A limiter on a server behind a proxy, or on one by itself."""
    async with target(way, port) as client:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # patience may exceed the deadline here
            made = (Limiter if way.kind.blocking else AsyncLimiter)(client, **{"deadline": DEADLINE} | options)
        facade = Facade(made)
        try:
            yield facade
        finally:
            await facade.close()


async def call(facade: Facade, work: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - what the call gives
    """A limiter's call, without holding up this loop."""
    if isinstance(facade.limiter, AsyncLimiter):
        return await work(facade.limiter)
    return await asyncio.to_thread(work, facade.limiter)
