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
    took = time.perf_counter() - began
    waits.sort()
    return Load(len(waits) / took, waits[len(waits) // 2], waits[len(waits) * 99 // 100])


async def compete(contestants: Mapping[str, Callable[[], Awaitable[Load]]], *, rounds: int) -> dict[str, list[Load]]:
    """A load for each contestant and round; the first round warms up and does not count."""
    found: dict[str, list[Load]] = {name: [] for name in contestants}
    for at in range(rounds + 1):
        for name, run in contestants.items():
            load = await run()
            if at:
                found[name].append(load)
    return found


def rates(loads: list[Load]) -> list[float]:
    return [load.rate for load in loads]
