"""Everybody wants a slot of another gauge."""

from __future__ import annotations

from bench.clients import NAMES
from bench.scene import CLIENTS, MUCH, Contestants, Run, Scene, Where
from bench.scenes.hot import held, held_bare
from pyslot import Slots

GAUGES = tuple(Slots(f"g{n}", MUCH) for n in range(1_000))
KEYS = tuple(b"bare:v1:{g%d}:s" % n for n in range(1_000))


async def contestants(run: Run) -> Contestants:
    found: Contestants = {}
    for client in CLIENTS:
        found[f"pyslot, {NAMES[client]}"] = run.tasks(held(await run.limiter(client), GAUGES))
        found[f"bare EVALSHA, {NAMES[client]}"] = run.tasks(held_bare(await run.bare(client), KEYS))
    if not run.place.cluster:
        alone = await run.limiter("redis", coalesce=False)
        found["pyslot, redis-py, each call by itself"] = run.tasks(held(alone, GAUGES))
    return found


SCENE = Scene(
    "1,000 gauges",
    "One slot of one of 1,000 gauges, each as likely as the next, taken and given back; 64 tasks.",
    contestants,
    (Where.SERVER, Where.CLUSTER),
)
