"""Limits that live on several nodes of a cluster, and the same kept together by a tag."""

from __future__ import annotations

import asyncio

from bench import bare
from bench.clients import NAMES, Execute
from bench.rounds import Step
from bench.scene import CLIENTS, MUCH, Contestants, Run, Scene, Where, ids
from pyslot import AsyncLimiter, Slots
from pyslot.calls import ADMIT, FINISH

SUBJECTS = ("key:sk-1", "team:a", "user:u", "model:m")
APART = tuple(Slots(subject, MUCH) for subject in SUBJECTS)
TOGETHER = tuple(Slots(subject, MUCH, tag="org:acme") for subject in SUBJECTS)
KEYS_APART = tuple(f"bare:v1:{{{subject}}}:s".encode() for subject in SUBJECTS)
KEYS_TOGETHER = tuple(f"bare:v1:{{org:acme}}:s:{subject}".encode() for subject in SUBJECTS)
RULE = (b"s", b"%d" % MUCH, b"60000")


def held(limiter: AsyncLimiter, gauges: tuple[Slots, ...]) -> Step:
    async def step() -> None:
        async with limiter.acquire(*gauges):
            pass

    return step


def bare_together(execute: Execute) -> Step:
    fresh = ids()

    async def step() -> None:
        id = next(fresh)
        await execute("EVALSHA", ADMIT.sha, b"4", *KEYS_TOGETHER, b"", b"", *RULE * 4, id)
        await execute("EVALSHA", FINISH.sha, b"4", *KEYS_TOGETHER, b"", *(b"s",) * 4, id)

    return step


def bare_apart(execute: Execute) -> Step:
    fresh = ids()

    async def step() -> None:
        id = next(fresh)
        await asyncio.gather(*(execute(*bare.take(key, id)) for key in KEYS_APART))
        await asyncio.gather(*(execute(*bare.give(key, id)) for key in KEYS_APART))

    return step


async def contestants(run: Run) -> Contestants:
    found: Contestants = {}
    for client in CLIENTS:
        limiter, execute = await run.limiter(client), await run.bare(client)
        found[f"pyslot, {NAMES[client]}"] = run.tasks(held(limiter, APART))
        found[f"pyslot, {NAMES[client]}, one tag"] = run.tasks(held(limiter, TOGETHER))
        found[f"bare EVALSHA, {NAMES[client]}, not atomic"] = run.tasks(bare_apart(execute))
        found[f"bare EVALSHA, {NAMES[client]}, one tag"] = run.tasks(bare_together(execute))
    return found


SCENE = Scene(
    "Across hash slots",
    "A slot of each of four gauges, all or none, taken and given back; 64 tasks. The gauges live in four hash slots, "
    "or with one tag in one. The bare scripts without a tag send four calls at once and would not undo a part.",
    contestants,
    (Where.CLUSTER,),
)
