"""A gateway's request: slots, requests and tokens of a key, its team, its user and the model, estimates settled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import cache
from typing import Any

from pyslot import AsyncLimiter, Limiter, Slots, Window
from pyslot.calls import ADMIT, FINISH
from pyslot.kinds import Charge

MUCH = 10**9
ESTIMATE, REAL = 1_000, 700
WHO = {"key": 500, "team": 50, "user": 500, "model": 5}

Words = tuple[bytes | str, ...]


def zipf(n: int) -> int:
    """1 to n; the first comes up half the time."""
    return min(int(random.paretovariate(1.0)), n)


@cache
def limits(kind: str, n: int, tag: str | None = None) -> tuple[Slots, Window, Charge, Charge]:
    tokens = Window(f"{kind}:{n}", "tokens", MUCH, tag=tag)
    return (
        Slots(f"{kind}:{n}", MUCH, tag=tag),
        Window(f"{kind}:{n}", "requests", MUCH, tag=tag),
        tokens.cost(ESTIMATE),
        tokens.cost(REAL),
    )


def request(tag: str | None = None) -> tuple[list[Slots | Window | Charge], list[Charge]]:
    """What one request asks for, and what it settles to."""
    asked: list[Slots | Window | Charge] = []
    real = []
    for kind, most in WHO.items():
        slots, requests, estimate, used = limits(kind, zipf(most), tag)
        asked += (slots, requests, estimate)
        real.append(used)
    return asked, real


async def ours(limiter: AsyncLimiter, tag: str | None = None) -> None:
    asked, real = request(tag)
    async with limiter.acquire(*asked) as permit:
        permit.settle(*real)


def ours_blocking(limiter: Limiter, tag: str | None = None) -> None:
    asked, real = request(tag)
    with limiter.acquire(*asked) as permit:
        permit.settle(*real)


class Bare:
    """The same two scripts with the same keys and arguments, one EVALSHA each, without the library."""

    def __init__(self, execute: Callable[..., Any], tag: str | None = None) -> None:
        """`execute` sends a command, blocking or as an awaitable; with a `tag` all keys share a hash slot."""
        self._execute = execute
        self._tag = tag
        self._number = 0

    async def __call__(self) -> None:
        for words in self._both(self._keys()):
            await self._execute(*words)

    def blocking(self) -> None:
        for words in self._both(self._keys()):
            self._execute(*words)

    async def apart(self) -> None:
        """On a cluster without a tag: a call for each subject, four at once, and nothing that holds them together."""
        keys = self._keys()
        calls = [self._both(keys[at : at + 3]) for at in range(0, len(keys), 3)]
        for at in (0, 1):
            await asyncio.gather(*(self._execute(*both[at]) for both in calls))

    def _keys(self) -> list[bytes]:
        return [key for kind, most in WHO.items() for key in _keys(kind, zipf(most), self._tag)]

    def _both(self, keys: list[bytes]) -> tuple[Words, Words]:
        self._number += 1
        id, count, subjects = b"abcdefghijkl%x" % self._number, b"%d" % len(keys), len(keys) // 3
        return (
            ("EVALSHA", ADMIT.sha, count, *keys, b"", b"", *RULES * subjects, id, *ESTIMATES * subjects),
            ("EVALSHA", FINISH.sha, count, *keys, b"", *SPANS * subjects, id, *REALS * subjects),
        )


RULES = (b"s", b"%d" % MUCH, b"60000", *(b"w", b"%d" % MUCH, b"60000") * 2)
SPANS = (b"s", b"60000", b"60000")
ESTIMATES, REALS = (b"1", b"%d" % ESTIMATE), (b"-", b"%d" % REAL)


@cache
def _keys(kind: str, n: int, tag: str | None) -> tuple[bytes, bytes, bytes]:
    start, end = (f"bare:v1:{{{tag}}}", f":{kind}:{n}") if tag else (f"bare:v1:{{{kind}:{n}}}", "")
    return tuple(f"{start}:{what}{end}".encode() for what in ("s", "w:requests:60000", "w:tokens:60000"))  # type: ignore[return-value]  # three
