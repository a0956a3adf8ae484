"""Interleaved rounds: every contestant in every round, so that what a noisy machine does hits all of them alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from statistics import median
from typing import NamedTuple

Step = Callable[[], Awaitable[object]]


class Load(NamedTuple):
    """What many tasks did in a while."""

    rate: float
    """Steps a second."""
    p50: float
    """Seconds; as `p99`."""
    p99: float
    steps: int = 0
    """How many there were."""
    server: float | None = None
    """Microseconds of the server's processor for each step; None where nobody looked."""
    used: float | None = None
    """The share of the slot-seconds that was held, where slots are scarce."""


class Ratio(NamedTuple):
    """One contestant against another, round by round."""

    value: float
    """The median."""
    low: float
    """The middle half begins here, and ends at `high`."""
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(ours: list[float], theirs: list[float]) -> Ratio:
    found = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    return Ratio(median(found), found[len(found) // 4], found[-(len(found) // 4) - 1])


def timed(contestants: Mapping[str, Callable[[], object]], *, rounds: int, calls: int) -> dict[str, list[float]]:
    """Seconds a call, for each contestant and round."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():
        run()
    for _ in range(rounds):
        for name, run in contestants.items():
            began = time.perf_counter()
            for _ in range(calls):
                run()
            found[name].append((time.perf_counter() - began) / calls)
    return found


async def loaded(step: Step, *, tasks: int, seconds: float) -> Load:
    """Let tasks repeat a step for a while."""
    waits: list[float] = []
    end = time.perf_counter() + seconds

    async def work() -> None:
        while (began := time.perf_counter()) < end:
            await step()
            waits.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(tasks)))
    return summed(waits, time.perf_counter() - began)


async def repeated(step: Callable[[], object], *, seconds: float) -> Load:
    """Let one caller repeat a step that blocks for a while; nothing else runs meanwhile."""
    waits: list[float] = []
    began = at = time.perf_counter()
    while at < began + seconds:
        step()
        waits.append(time.perf_counter() - at)
        at = time.perf_counter()
    return summed(waits, at - began)


def summed(waits: list[float], took: float) -> Load:
    """What steps of these durations were, in so many seconds."""
    waits.sort()
    return Load(len(waits) / took, waits[len(waits) // 2], waits[len(waits) * 99 // 100], len(waits))


async def compete(
    contestants: Mapping[str, Callable[[], Awaitable[Load]]],
    *,
    rounds: int,
    spent: Callable[[], float] | None = None,
) -> dict[str, list[Load]]:
    """A load for each contestant and round; the first round warms up and does not count.

    `spent` says how many seconds of processor the server has used so far; it is asked before and after each load.
    """
    found: dict[str, list[Load]] = {name: [] for name in contestants}
    for at in range(rounds + 1):
        for name, run in contestants.items():
            before = spent() if spent else 0.0
            load = await run()
            if spent:
                load = load._replace(server=(spent() - before) / load.steps * 1e6)
            if at:
                found[name].append(load)
    return found


def rates(loads: list[Load]) -> list[float]:
    return [load.rate for load in loads]
