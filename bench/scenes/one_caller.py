"""One caller who blocks: nobody to share a round trip with, so this is what one call costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench import bare, gateway, peers
from bench.clients import NAMES, Execute
from bench.scene import CLIENTS, MUCH, Contestants, Run, Scene, Where, ids
from bench.scenes.gateway import TAG
from pyslot import Limiter, Slots, Window

GAUGE = Slots("pair", MUCH)
WINDOW = Window("pair", "requests", MUCH)
GAUGE_KEY = b"bare:v1:{pair}:s"
WINDOW_KEY = b"bare:v1:{pair}:w:requests:60000"

Blocking = Callable[[], object]


def held(limiter: Limiter) -> Blocking:
    def step() -> None:
        with limiter.acquire(GAUGE):
            pass

    return step


def held_bare(execute: Execute) -> Blocking:
    fresh = ids()

    def step() -> None:
        id = next(fresh)
        execute(*bare.take(GAUGE_KEY, id))
        execute(*bare.give(GAUGE_KEY, id))

    return step


def charged_bare(execute: Execute) -> Blocking:
    fresh = ids()
    return lambda: execute(*bare.reserve(WINDOW_KEY, next(fresh), b"1"))


async def of_gateway(run: Run) -> Contestants:
    found: Contestants = {}
    tag = TAG if run.place.cluster else None
    for client in CLIENTS:
        limiter, execute = run.blocking_limiter(client), run.blocking_bare(client)
        found[f"pyslot, {NAMES[client]}"] = run.alone(partial(gateway.ours_blocking, limiter, tag))
        found[f"bare EVALSHA, {NAMES[client]}"] = run.alone(gateway.Bare(execute, tag).blocking)
    return found


async def of_slot(run: Run) -> Contestants:
    found: Contestants = {}
    for client in CLIENTS:
        found[f"pyslot, {NAMES[client]}"] = run.alone(held(run.blocking_limiter(client)))
        found[f"bare EVALSHA, {NAMES[client]}"] = run.alone(held_bare(run.blocking_bare(client)))
    if not run.place.cluster:
        found["steindamm, semaphore"] = run.alone(peers.blocking_semaphore(run.place, run.stack))
    return found


async def of_window(run: Run) -> Contestants:
    found: Contestants = {}
    for client in CLIENTS:
        found[f"pyslot, {NAMES[client]}"] = run.alone(partial(run.blocking_limiter(client).charge, WINDOW))
        found[f"bare EVALSHA, {NAMES[client]}"] = run.alone(charged_bare(run.blocking_bare(client)))
    others = peers.blocking_counters(run.place, run.stack)
    return found | {name: run.alone(step) for name, step in others.items()}


GATEWAY = Scene(
    "A gateway's request, one caller",
    "The same 12 limits for one caller who blocks; on a cluster under one tag.",
    of_gateway,
    (Where.SERVER, Where.CLUSTER),
)
SLOT = Scene(
    "One slot, one caller",
    "One slot of one gauge, taken and given back, by one caller who blocks.",
    of_slot,
    (Where.SERVER, Where.CLUSTER),
)
COUNTED = Scene(
    "One window, one caller",
    "One request counted in one window, by one caller who blocks.",
    of_window,
)
