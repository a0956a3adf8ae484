"""Client libraries without pyslot: the floor. Each gives a function that sends one command of bytes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any, TypeAlias

import glide
import glide_sync
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from bench.places import Place

Execute: TypeAlias = Callable[..., Any]
"""(*words) -> the reply, or for asyncio an awaitable of it."""

NAMES = {"redis": "redis-py", "valkey": "valkey-py", "glide": "valkey-glide"}
"""The scheme of a client's store URL -> what its library is called."""
PATIENCE = 20.0
"""Seconds: on a busy machine a pool takes its time, and nothing here is about time-outs."""
POOL = 64
"""Connections of an asyncio client: one for each task of a load."""


def blocking(client: str, place: Place, stack: ExitStack | AsyncExitStack) -> Execute:
    host, port = place.masters[0].host, place.masters[0].port
    if client == "glide":
        made = _glide(glide_sync, place)
        stack.callback(made.close)
        return lambda *words: made.custom_command(list(words))
    library = redis if client == "redis" else valkey
    if place.cluster:
        kind = library.RedisCluster if client == "redis" else library.ValkeyCluster
    else:
        kind = library.Redis if client == "redis" else library.Valkey
    made = kind(host=host, port=port, socket_timeout=PATIENCE)
    stack.callback(made.close)
    execute: Execute = made.execute_command
    return execute


async def concurrent(client: str, place: Place, stack: AsyncExitStack) -> Execute:
    host, port = place.masters[0].host, place.masters[0].port
    if client == "glide":
        made = await _glide(glide, place)
        stack.push_async_callback(made.close)
        return lambda *words: made.custom_command(list(words))
    library = redis.asyncio if client == "redis" else valkey.asyncio
    if place.cluster:
        kind = library.RedisCluster if client == "redis" else library.ValkeyCluster
        made = kind(host=host, port=port, max_connections=4 * POOL)  # four calls of a task may meet at a node
    else:
        kind = library.Redis if client == "redis" else library.Valkey
        pool = library.BlockingConnectionPool(host=host, port=port, max_connections=POOL, timeout=PATIENCE)
        made = kind.from_pool(pool)
    stack.push_async_callback(made.aclose)
    execute: Execute = made.execute_command
    return execute


def _glide(library: Any, place: Place) -> Any:  # noqa: ANN401  # either of its packages
    addresses = [library.NodeAddress(place.masters[0].host, place.masters[0].port)]
    kind = "GlideCluster" if place.cluster else "Glide"
    config = getattr(library, f"{kind}ClientConfiguration")(addresses, request_timeout=int(PATIENCE * 1_000))
    return getattr(library, f"{kind}Client").create(config)
