"""Requests counted: what most rate limiters do, and all they do."""

from __future__ import annotations

from bench import bare, peers
from bench.clients import NAMES, Execute
from bench.rounds import Step
from bench.scene import CLIENTS, MUCH, Contestants, Run, Scene, ids
from pyslot import AsyncLimiter, Window

WINDOW = Window("hot", "requests", MUCH)
KEY = b"bare:v1:{hot}:w:requests:60000"


def charged(limiter: AsyncLimiter) -> Step:
    async def step() -> None:
        await limiter.charge(WINDOW)

    return step


def charged_bare(execute: Execute) -> Step:
    fresh = ids()
    return lambda: execute(*bare.reserve(KEY, next(fresh), b"1"))


async def contestants(run: Run) -> Contestants:
    found: Contestants = {}
    for client in CLIENTS:
        found[f"pyslot, {NAMES[client]}"] = run.tasks(charged(await run.limiter(client)))
        found[f"bare EVALSHA, {NAMES[client]}"] = run.tasks(charged_bare(await run.bare(client)))
    others = await peers.counters(run.place, run.stack, most=peers.LOG)
    return found | {name: run.tasks(step) for name, step in others.items()}


SCENE = Scene(
    "One window",
    "One request counted in one window of a minute that is never full; 64 tasks.",
    contestants,
)
