"""Worker processes that start together: each a fresh interpreter, as if on a machine of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from multiprocessing import get_context
from threading import BrokenBarrierError
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized
    from multiprocessing.synchronize import Barrier

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 30.0
"""Seconds a worker waits for the others."""


class Crew(NamedTuple):
    """What the workers have in common."""

    barrier: Barrier
    moment: Synchronized[float]
    """Of the monotonic clock, which the processes of a machine share."""
    done: Synchronized[int]

    def meet(self, delay: float) -> None:
        """Wait until every worker is here, and then, all of them, until the same moment `delay` seconds later."""
        if self.barrier.wait(PATIENCE) == 0:
            self.moment.value = time.monotonic() + delay
        self.barrier.wait(PATIENCE)
        time.sleep(max(0.0, self.moment.value - time.monotonic()))


_crew: Crew


def _join(crew: Crew) -> None:
    global _crew  # noqa: PLW0603  # locks reach a process only as it starts
    _crew = crew


def _work(work: Callable[..., T], *args: object) -> T:
    try:
        return work(_crew, *args)
    except BaseException:
        _crew.barrier.abort()
        raise


def run_crew(size: int, tick: Callable[[int], None], work: Callable[..., T], *args: object) -> list[T]:
    """Run `work(crew, *args)` in so many new processes; returns what each returned. `tick` hears of `crew.done`."""
    context = get_context("spawn")
    crew = Crew(context.Barrier(size), context.Value("d"), context.Value("i"))
    with ProcessPoolExecutor(size, context, _join, (crew,)) as pool:
        futures = {pool.submit(_work, work, *args) for _ in range(size)}
        while not all(future.done() for future in futures):
            wait(futures, 0.1, FIRST_EXCEPTION)
            tick(crew.done.value)
    # Who broke down is told before those who then waited in vain.
    for future in sorted(futures, key=lambda future: isinstance(future.exception(), BrokenBarrierError)):
        future.result()
    return [future.result() for future in futures]
