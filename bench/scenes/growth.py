"""Time on the server as things grow: slots that live, limits in a call, permits in a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import redis

from bench import bare
from bench.bare import Words
from bench.beside import Worker
from bench.clients import PATIENCE
from bench.places import Place
from bench.scene import MUCH, Curve, Curves
from pyslot.calls import ADMIT, FINISH

LIVE = (10, 100, 1_000, 10_000, 100_000)
LIMITS = (1, 2, 4, 8, 16, 32)
BATCHES = (1, 4, 16, 64, 256)
PAIRS = 256


def measure(place: Place, _: Worker | None, rounds: int) -> dict[str, dict[str, Curve]]:
    with redis.Redis(port=place.masters[0].port, socket_timeout=PATIENCE) as client:
        for size in LIVE:
            fill(client, _gauge(size), size)
        spent = partial(_spent, place, client)
        what: dict[str, dict[int, Callable[[], float]]] = {
            "live slots in the gauge": {size: partial(spent, _held(_gauge(size), 1)) for size in LIVE},
            "windows in the call": {count: partial(spent, _charged(count)) for count in LIMITS},
            "permits in the call": {batch: partial(spent, _held(b"{batch}:s", batch)) for batch in BATCHES},
        }
        found: dict[str, dict[str, Curve]] = {
            grows: {"pyslot": {str(size): [] for size in sizes}} for grows, sizes in what.items()
        }
        for _round in range(rounds):
            for grows, sizes in what.items():
                for size, run in sizes.items():
                    found[grows]["pyslot"][str(size)].append(run())
    return found


def fill(client: Any, key: bytes, size: int, there: int = 0) -> None:  # noqa: ANN401  # a client
    """Let `size` slots live in a gauge where `there` live already."""
    for first in range(there, size, 1_000):
        ids = [b"abcdefghijkl%x" % n for n in range(first, min(size, first + 1_000))]
        client.execute_command(*bare.take(key, *ids, lease=b"3600000"))


def _gauge(size: int) -> bytes:
    return b"{live%d}:s" % size


def _held(key: bytes, batch: int) -> list[Words]:
    """Slots taken and given back, so many in a call."""
    batches = [[b"zyxwvutsrqpo%x" % n for n in range(first, first + batch)] for first in range(0, PAIRS, batch)]
    return [words for ids in batches for words in (bare.take(key, *ids), bare.give(key, *ids))]


def _charged(count: int) -> list[Words]:
    """Charged to so many windows, and settled."""
    keys, rule = [b"{few}:w:%d" % n for n in range(count)], (b"w", b"%d" % MUCH, b"60000")
    head, found = (b"%d" % count, *keys, b""), list[Words]()
    for id in (b"zyxwvutsrqpo%x" % n for n in range(PAIRS)):
        found.append(("EVALSHA", ADMIT.sha, *head, b"", *rule * count, id, *(b"5",) * count))
        found.append(("EVALSHA", FINISH.sha, *head, *(b"60000",) * count, id, *(b"3",) * count))
    return found


def _spent(place: Place, client: Any, commands: Sequence[Words]) -> float:  # noqa: ANN401  # a client
    """Microseconds of the server for each pair of calls, by its own count."""
    place.masters[0].command("CONFIG", "RESETSTAT")
    pipeline = client.pipeline(transaction=False)
    for words in commands:
        pipeline.execute_command(*words)
    pipeline.execute()
    return float(client.info("commandstats")["cmdstat_evalsha"]["usec"]) / PAIRS


CURVES = Curves(
    "Time on the server",
    "What the scripts of one acquire and its finish take of the server, by its own count: one slot of a gauge in which "
    "others live already, more windows in one call, more permits in one call.",
    "µs of the server for each permit",
    measure,
)
