"""A real server for an ASGI application, and a limiter whose store the test looks into from outside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import uvicorn

from pyslot import AsyncLimiter, Limiter
from pyslot.adapters.memory import AsyncMemoryStore, MemoryStore


def limiters(**options: Any) -> tuple[AsyncLimiter, Limiter]:  # noqa: ANN401 - those of AsyncLimiter
    """(for the application, for the test), over one store."""
    store = MemoryStore()
    return AsyncLimiter(AsyncMemoryStore(store), **options), Limiter(store)


@asynccontextmanager
async def serve(app: Any, lifespan: Literal["on", "off"] = "off") -> AsyncIterator[str]:  # noqa: ANN401 - any ASGI app
    """Serve on loopback for the time of the block; gives the URL."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan=lifespan, ws="websockets-sansio")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    await eventually(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        server.force_exit = lifespan == "off"  # it would leave out the end of the lifespan
        await task


async def eventually(true: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until it is true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true"
        await asyncio.sleep(0.005)
