"""A gateway's request: slots, requests and tokens of a key, its team, its user and the model, estimates settled."""

from __future__ import annotations

import random
from functools import cache

from pyslot import AsyncLimiter, Slots, Window
from pyslot.calls import FINISH, SCRIPTS
from pyslot.kinds import Charge

MUCH = 10**9
ESTIMATE, REAL = 1_000, 700
WHO = {"key": 500, "team": 50, "user": 500, "model": 5}


def zipf(n: int) -> int:
    """1 to n; the first comes up half the time."""
    return min(int(random.paretovariate(1.0)), n)


@cache
def limits(kind: str, n: int) -> tuple[Slots, Window, Charge, Charge]:
    tokens = Window(f"{kind}:{n}", "tokens", MUCH)
    return (
        Slots(f"{kind}:{n}", MUCH),
        Window(f"{kind}:{n}", "requests", MUCH),
        tokens.cost(ESTIMATE),
        tokens.cost(REAL),
    )


def request() -> tuple[list[Slots | Window | Charge], list[Charge]]:
    """What one request asks for, and what it settles to."""
    asked: list[Slots | Window | Charge] = []
    real = []
    for kind, most in WHO.items():
        slots, requests, estimate, used = limits(kind, zipf(most))
        asked += (slots, requests, estimate)
        real.append(used)
    return asked, real


async def ours(limiter: AsyncLimiter) -> None:
    asked, real = request()
    async with limiter.acquire(*asked) as permit:
        permit.settle(*real)


class Bare:
    """The same two scripts with the same keys and arguments, one EVALSHA each, without the library."""

    def __init__(self, execute) -> None:  # noqa: ANN001  # a client's execute_command
        self._execute = execute
        self._number = 0

    async def __call__(self) -> None:
        self._number += 1
        id = b"abcdefghijkl%x" % self._number
        keys: list[bytes] = []
        for kind, most in WHO.items():
            keys += _keys(kind, zipf(most))
        await self._execute("EVALSHA", SCRIPTS["admit"].sha, len(keys), *keys, *ADMIT_HEAD, id, *[b"1", b"1000"] * 4)
        await self._execute("EVALSHA", FINISH.sha, len(keys), *keys, *FINISH_HEAD, id, *[b"-", b"700"] * 4)


ADMIT_HEAD = (b"", b"", *(b"s", b"%d" % MUCH, b"60000", *(b"w", b"%d" % MUCH, b"60000") * 2) * 4)
FINISH_HEAD = (b"", *(b"s", b"60000", b"60000") * 4)


@cache
def _keys(kind: str, n: int) -> tuple[bytes, bytes, bytes]:
    tag = f"bare:v1:{{{kind}:{n}}}"
    return f"{tag}:s".encode(), f"{tag}:w:requests:60000".encode(), f"{tag}:w:tokens:60000".encode()
