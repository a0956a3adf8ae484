"""The headline: what a gateway asks for each request."""

from __future__ import annotations

from functools import partial

from bench import gateway
from bench.clients import NAMES
from bench.scene import CLIENTS, Contestants, Run, Scene, Where

TAG = "org:acme"


async def contestants(run: Run) -> Contestants:
    return await (_on_cluster(run) if run.place.cluster else _on_server(run))


async def _on_server(run: Run) -> Contestants:
    found: Contestants = {}
    for client in CLIENTS:
        found[f"pyslot, {NAMES[client]}"] = run.tasks(partial(gateway.ours, await run.limiter(client)))
        found[f"bare EVALSHA, {NAMES[client]}"] = run.tasks(gateway.Bare(await run.bare(client)))
    alone = await run.limiter("redis", coalesce=False)
    found["pyslot, redis-py, each call by itself"] = run.tasks(partial(gateway.ours, alone))
    return found | run.litellm_does("gateway")


async def _on_cluster(run: Run) -> Contestants:
    found: Contestants = {}
    for client in CLIENTS:
        limiter = await run.limiter(client)
        found[f"pyslot, {NAMES[client]}"] = run.tasks(partial(gateway.ours, limiter))
        found[f"pyslot, {NAMES[client]}, one tag"] = run.tasks(partial(gateway.ours, limiter, TAG))
        execute = await run.bare(client)
        found[f"bare EVALSHA, {NAMES[client]}, not atomic"] = run.tasks(gateway.Bare(execute).apart)
        found[f"bare EVALSHA, {NAMES[client]}, one tag"] = run.tasks(gateway.Bare(execute, TAG))
    return found


SCENE = Scene(
    "A gateway's request",
    "Slots, requests and tokens of a key, its team, its user and its model: 12 limits, all or none, taken with an "
    "estimate, settled and given back. Zipf over 500 keys, 500 users, 50 teams and 5 models; 64 tasks. On a cluster "
    "the four subjects live in four hash slots, or with one tag in one.",
    contestants,
    (Where.SERVER, Where.CLUSTER),
    longer=2,
)
