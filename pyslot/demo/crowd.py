"""Many workers, few slots: does the model server ever see one request too many, and are the slots put to use?"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from pyslot import AsyncLimiter, Limiter, LimitExceeded, Slots
from pyslot.adapters import embedded
from pyslot.demo.crew import Crew, run_crew
from pyslot.demo.figures import Chapter, Figure, Tick
from pyslot.demo.model_server import Load, connect, load_of, model_server

PROCESSES, TASKS, LIMIT = 4, 15, 5
FASTEST, SLOWEST = 0.4, 0.8
"""Seconds the model server takes over a request."""
SLOTS = Slots("model:stand-in", limit=LIMIT)


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of it."""

    rush: Load
    """The model server's load while all workers wanted a slot."""
    total: Load
    """Its load when everybody had finished."""
    waits: list[list[float]]
    """For each worker, the seconds it waited for each of its turns."""
    left_over: int
    """Slots held when everybody had finished."""


def run(seconds: float, tick: Tick) -> Chapter:
    return Chapter(
        f"{PROCESSES * TASKS} workers, {LIMIT} slots",
        f"{PROCESSES} processes of {TASKS} workers each have requests for one model server, as many as they can send "
        f"in {seconds:g} s. Every request first waits for one of {LIMIT} slots, then keeps the model server busy for "
        f"{FASTEST} to {SLOWEST} s. The model server knows nothing of slots. It counts how many requests it works on.",
        judge(watch(seconds, tick)),
    )


def judge(seen: Seen) -> list[Figure]:
    used = seen.rush.busy / (LIMIT * seen.rush.seconds)
    turns = [wait for waits in seen.waits for wait in waits]
    crews = [seen.waits[at : at + TASKS] for at in range(0, len(seen.waits), TASKS)]
    apart = max((max(map(len, crew)) - min(map(len, crew)) for crew in crews), default=0)
    return [
        Figure("most requests at once", f"{LIMIT}, exactly", f"{seen.total.peak}", seen.total.peak == LIMIT),
        Figure(
            "slot-seconds used",
            "at least 90 %",
            f"{used:.1%} of {LIMIT} slots in {seen.rush.seconds:.1f} s".replace("%", " %"),
            used >= 0.9,
        ),
        Figure(
            "requests served",
            "as many as slots were given",
            f"{seen.total.served} served, {len(turns)} slots given",
            seen.total.served == len(turns) > 0,
        ),
        Figure("slots held afterwards", "0", f"{seen.left_over}", seen.left_over == 0),
        Figure(
            "turns of workers of one process",
            "2 apart, at most",
            f"{apart} apart",
            apart <= 2,
        ),
        Figure(
            "workers that had a turn",
            "(not promised among processes)",
            f"{sum(map(bool, seen.waits))} of {len(seen.waits)}; the longest waited {max(turns, default=0):.1f} s",
        ),
    ]


def watch(seconds: float, tick: Tick) -> Seen:
    store = embedded.open_sync("embedded://", deadline=1.0)
    with Limiter(store) as limiter, model_server(FASTEST, SLOWEST) as port:
        rush = Load()

        def look(_: int) -> None:
            nonlocal rush
            load = load_of(port)
            if load.seconds <= seconds:
                rush = load
            tick(load.seconds / seconds)

        waits = run_crew(PROCESSES, look, work, store.url, port, seconds)
        return Seen(rush, load_of(port), [worker for process in waits for worker in process], limiter.count(SLOTS))


def work(crew: Crew, url: str, port: int, seconds: float) -> list[list[float]]:
    """What one process does."""
    crew.meet(0.05)
    return asyncio.run(_live(url, port, time.monotonic() + seconds))


async def _live(url: str, port: int, end: float) -> list[list[float]]:
    async with AsyncLimiter(url) as limiter:
        return await asyncio.gather(*(_worker(limiter, port, end) for _ in range(TASKS)))


async def _worker(limiter: AsyncLimiter, port: int, end: float) -> list[float]:
    waits: list[float] = []
    async with connect(port) as ask:
        while (left := end - (asked := time.monotonic())) > 0:
            try:
                async with limiter.acquire(SLOTS, wait=left):
                    waits.append(time.monotonic() - asked)
                    await ask("generate")
            except LimitExceeded:
                break
    return waits
