"""One worker process: asks, works, finishes, and writes down every step."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import signal
import sys
import threading
import time
from pathlib import Path

from pyslot import AsyncLimiter, Limiter, Slots, StoreError, StoreUnavailable, Window
from tests.chaos.books import Book, Step

GAUGES, LIMIT, LEASE, DEADLINE = 6, 4, 3.0, 0.5
SLOTS = [Slots(f"gauge:{n}", LIMIT, lease=LEASE) for n in range(GAUGES)]
THREADS, TASKS = 4, 24
LATE = 1.0
"""Seconds between the last request and closing: longer than a packet is on its way, for nothing can undo what arrives
after the limiter that would undo it has closed."""


def window(name: str) -> Window:
    """A worker's own, so that every unit in it is in the worker's book."""
    return Window(f"worker:{name}", "tokens", None, per=3600)


def _work() -> float:
    # Mostly short, now and then several renewals long.
    return random.expovariate(1 / 0.004) if random.random() > 0.002 else random.uniform(0.5, 1.5 * LEASE)


class _Run:
    def __init__(self, url: str, path: Path, stop: threading.Event) -> None:
        self.url = url
        self.book = Book(path)
        self.window = window(path.stem)
        self.numbers = itertools.count()
        self.stop = stop

    def thread(self, limiter: Limiter) -> None:
        write = self.book.write
        while not self.stop.is_set():
            gauge, op, cost, figure = random.randrange(GAUGES), next(self.numbers), *random.choices(range(50), k=2)
            write(Step.ASK, gauge, op, cost)
            try:
                permit = limiter.try_acquire(SLOTS[gauge], self.window.cost(cost)).permit
            except (StoreUnavailable, StoreError):
                write(Step.FAILED, gauge, op)
                time.sleep(0.01)
                continue
            if permit is None:
                write(Step.REFUSED, gauge, op)
                time.sleep(random.uniform(0, 0.01))
                continue
            write(Step.GRANT, gauge, op)
            time.sleep(_work())
            permit.settle(self.window.cost(figure))
            write(Step.END, gauge, op, figure)
            if permit.lost:
                write(Step.LOST, gauge, op)
            try:
                permit.finish()
            except StoreUnavailable:
                write(Step.LATER, gauge, op)
            else:
                write(Step.DONE, gauge, op)

    async def task(self, limiter: AsyncLimiter) -> None:
        write = self.book.write
        while not self.stop.is_set():
            gauge, op, cost, figure = random.randrange(GAUGES), next(self.numbers), *random.choices(range(50), k=2)
            write(Step.ASK, gauge, op, cost)
            try:
                if random.random() < 0.01:
                    async with asyncio.timeout(random.uniform(0, 0.004)):
                        decision = await limiter.try_acquire(SLOTS[gauge], self.window.cost(cost))
                else:
                    decision = await limiter.try_acquire(SLOTS[gauge], self.window.cost(cost))
            except (StoreUnavailable, StoreError, TimeoutError):
                write(Step.FAILED, gauge, op)
                await asyncio.sleep(0.01)
                continue
            if decision.permit is None:
                write(Step.REFUSED, gauge, op)
                await asyncio.sleep(random.uniform(0, 0.02))
                continue
            write(Step.GRANT, gauge, op)
            await asyncio.sleep(_work())
            decision.permit.settle(self.window.cost(figure))
            write(Step.END, gauge, op, figure)
            if decision.permit.lost:
                write(Step.LOST, gauge, op)
            try:
                await decision.permit.finish()
            except StoreUnavailable:
                write(Step.LATER, gauge, op)
            else:
                write(Step.DONE, gauge, op)

    def watch(self) -> None:
        """Notice when this process stands still, for whatever reason."""
        worst = 0.05
        while True:
            began = time.monotonic()
            time.sleep(0.01)
            late = time.monotonic() - began - 0.01
            if late > worst:
                worst = late
                self.book.write(Step.STALL, 0, 0, round(late * 1000))

    def threads(self) -> None:
        with Limiter(self.url, deadline=DEADLINE) as limiter:
            threads = [threading.Thread(target=self.thread, args=(limiter,)) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            time.sleep(LATE)

    async def tasks(self) -> None:
        async with AsyncLimiter(self.url, deadline=DEADLINE) as limiter:
            await asyncio.gather(*(self.task(limiter) for _ in range(TASKS)))
            await asyncio.sleep(LATE)


def main(colour: str, url: str, path: str) -> None:
    logging.disable()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run = _Run(url, Path(path), stop)
    threading.Thread(target=run.watch, daemon=True).start()
    if colour == "sync":
        run.threads()
    else:
        asyncio.run(run.tasks())
    run.book.write(Step.CLOSED, 0, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
