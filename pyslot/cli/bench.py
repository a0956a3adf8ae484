"""`pyslot bench`: what a permit costs from here, on that server."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import click
from rich.table import Table

from pyslot.adapters.base import open_store
from pyslot.aio import AsyncLimiter
from pyslot.calls import SCRIPTS
from pyslot.cli.screen import console, json_option, progress, url_argument, waiting
from pyslot.keys import Naming
from pyslot.kinds import Slots, Window
from pyslot.limiter import Limiter
from pyslot.loader import Call

_SUBJECT = "pyslot-bench"
_FIRST = 50
"""Rounds that are not counted: connections are made, and scripts sent."""


class Result(NamedTuple):
    """What one thing costs."""

    what: str
    rate: float
    """A second, from all callers together."""
    median: float
    """Seconds that one takes."""
    slow: float
    """Seconds that 99 in 100 take at most."""


@click.command("bench")
@url_argument
@click.option(
    "--seconds", default=2.0, show_default=True, metavar="N", type=click.FloatRange(min=0.1), help="For each line."
)
@click.option(
    "--tasks",
    default=64,
    show_default=True,
    metavar="N",
    type=click.IntRange(min=1),
    help="Callers at once, of the last line.",
)
@json_option
def command(url: str, seconds: float, tasks: int, as_json: bool) -> None:
    """Measure what a permit costs on a server, from this machine.

    A pair is one request: its slot and its charges taken, then settled and given back, in two round trips. It works
    under a prefix of its own, and clears up. Busy servers and busy machines give other figures; compare lines of one
    run.
    """
    out = console()
    prefix = f"pyslot-bench-{secrets.token_hex(4)}"
    limits = (Slots(_SUBJECT, None), Window(_SUBJECT, "requests", None), Window(_SUBJECT, "tokens", None))
    with waiting("waiting for the server to answer"), Limiter(url) as limiter:
        limiter.count(limits[0])
    measures: tuple[Callable[[], Result], ...] = (
        lambda: _script(url, prefix, seconds),
        lambda: _pairs(url, prefix, limits[:1], seconds),
        lambda: _pairs(url, prefix, limits, seconds),
        lambda: asyncio.run(_crowd(url, prefix, limits, seconds, tasks)),
    )
    results = []
    with _clear(url, prefix, limits), progress(out, "measuring") as tick:
        for measure in measures:
            results.append(measure())
            tick(len(results) / len(measures))
    if as_json:
        click.echo(json.dumps([each._asdict() for each in results], indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("what")
    for head in ("a second", "median ms", "99 % within ms"):
        table.add_column(head, justify="right", no_wrap=True)
    for each in results:
        table.add_row(each.what, f"{each.rate:,.0f}", f"{1000 * each.median:.2f}", f"{1000 * each.slow:.2f}")
    out.print(table)


@contextmanager
def _clear(url: str, prefix: str, limits: tuple[Slots, Window, Window]) -> Iterator[None]:
    try:
        yield
    finally:
        with Limiter(url, prefix=prefix) as limiter:
            limiter.reset(*limits)


def _script(url: str, prefix: str, seconds: float) -> Result:
    store = open_store(url, 1.0)
    call = Call(SCRIPTS["count"], (Slots(_SUBJECT, 1).wire(Naming(prefix)).key,), (b"",))
    try:
        return _repeat("the least script (count)", lambda: store.run(call), seconds)
    finally:
        store.close()


def _pairs(url: str, prefix: str, limits: tuple[Slots | Window, ...], seconds: float) -> Result:
    asked = [limit.cost(100) if isinstance(limit, Window) and limit.meter == "tokens" else limit for limit in limits]
    real = [limit.cost(80) for limit in limits if isinstance(limit, Window) and limit.meter == "tokens"]
    with Limiter(url, prefix=prefix) as limiter:

        def pair() -> None:
            with limiter.acquire(*asked) as permit:
                permit.settle(*real)

        what = "a pair: slots alone" if len(limits) == 1 else "a pair: slots, requests, tokens"
        return _repeat(what, pair, seconds)


async def _crowd(url: str, prefix: str, limits: tuple[Slots, Window, Window], seconds: float, tasks: int) -> Result:
    slots, requests, tokens = limits
    took: list[float] = []
    async with AsyncLimiter(url, prefix=prefix) as limiter:

        async def caller(end: float) -> None:
            while (began := time.perf_counter()) < end:
                async with limiter.acquire(slots, requests, tokens.cost(100)) as permit:
                    permit.settle(tokens.cost(80))
                took.append(time.perf_counter() - began)

        await caller(time.perf_counter() + 0.05)
        took.clear()
        began = time.perf_counter()
        await asyncio.gather(*(caller(began + seconds) for _ in range(tasks)))
        return _result(f"the same, from {tasks} asyncio tasks", took, time.perf_counter() - began)


def _repeat(what: str, once: Callable[[], object], seconds: float) -> Result:
    for _ in range(_FIRST):
        once()
    took = []
    began = now = time.perf_counter()
    while now < began + seconds:
        once()
        before, now = now, time.perf_counter()
        took.append(now - before)
    return _result(what, took, now - began)


def _result(what: str, took: list[float], seconds: float) -> Result:
    took.sort()
    return Result(what, len(took) / seconds, took[len(took) // 2], took[len(took) * 99 // 100])
