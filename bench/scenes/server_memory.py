"""Memory on the server for each slot that lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import limits
import redis

from bench.beside import Worker
from bench.clients import PATIENCE
from bench.places import Place
from bench.scene import MUCH, Curve, Curves
from bench.scenes.growth import LIVE, fill

MOST_HITS = 10_000
"""Each is a call of its own: more would take long and say no more."""


def measure(place: Place, litellm: Worker | None, _: int) -> dict[str, dict[str, Curve]]:
    """One round: the same commands always take the same memory."""
    with redis.Redis(port=place.masters[0].port, socket_timeout=PATIENCE) as client:
        found = {
            "pyslot": _grown(client, "{memory}:s", LIVE, lambda first, size: fill(client, b"{memory}:s", size, first))
        }
        if litellm:
            acquire = client.script_load(litellm.ask(what="scripts")["acquire"])
            found["LiteLLM"] = _grown(client, "{theirs}:gauge", LIVE, _fill_theirs(client, acquire))
        few = [size for size in LIVE if size <= MOST_HITS]
        found["limits, moving window"] = _grown(client, None, few, _hits(place))
    return {"live slots, or hits in the window": found}


def _grown(client: Any, key: str | None, sizes: Any, grow: Callable[[int, int], object]) -> Curve:  # noqa: ANN401
    """Bytes for each entry, as a key grows from size to size; without `key`, of the only new key there is."""
    found: Curve = {}
    before = set(client.keys())
    there = 0
    for size in sizes:
        grow(there, size)
        there = size
        name = key or next(iter(set(client.keys()) - before))
        found[str(size)] = [client.memory_usage(name, samples=0) / size]
    return found


def _fill_theirs(client: Any, acquire: str) -> Callable[[int, int], None]:  # noqa: ANN401  # a client
    def grow(first: int, size: int) -> None:
        for start in range(first, size, 1_000):
            pipeline = client.pipeline(transaction=False)
            for n in range(start, min(size, start + 1_000)):
                pipeline.execute_command("EVALSHA", acquire, 1, "{theirs}:gauge", MUCH, 600, f"{n:032x}")
            pipeline.execute()

    return grow


def _hits(place: Place) -> Callable[[int, int], None]:
    store = limits.storage.storage_from_string(f"redis://{place.masters[0].address}")
    limiter = limits.strategies.MovingWindowRateLimiter(store)
    rule = limits.parse(f"{2 * MOST_HITS}/hour")

    def grow(first: int, size: int) -> None:
        for _ in range(first, size):
            limiter.hit(rule, "memory")

    return grow


CURVES = Curves(
    "Memory on the server",
    "Bytes of the server's memory for each slot that lives, as MEMORY USAGE says. LiteLLM's ids are 32 characters "
    "long, ours 12 and a number; `limits` has no slots, and keeps a list of hits.",
    "bytes for each",
    measure,
)
