"""Time on the server as things grow: slots that live, limits in a call, permits in a call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import redis

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
        windows = [f"{{few}}:w:{n}" for n in range(max(LIMITS))]
        what: dict[str, dict[int, Callable[[], float]]] = {
            "live slots in the gauge": {size: partial(spent, [_gauge(size)], 1) for size in LIVE},
            "windows in the call": {count: partial(spent, windows[:count], 1) for count in LIMITS},
            "permits in the call": {batch: partial(spent, ["{batch}:s"], batch) for batch in BATCHES},
        }
        found: dict[str, dict[str, Curve]] = {
            grows: {"pyslot": {str(size): [] for size in sizes}} for grows, sizes in what.items()
        }
        for _round in range(rounds):
            for grows, sizes in what.items():
                for size, run in sizes.items():
                    found[grows]["pyslot"][str(size)].append(run())
    return found


def fill(client: Any, key: str, size: int, there: int = 0) -> None:  # noqa: ANN401  # a client
    """Let `size` slots live in a gauge where `there` live already."""
    for first in range(there, size, 1_000):
        ids = [b"abcdefghijkl%x" % n for n in range(first, min(size, first + 1_000))]
        client.execute_command("EVALSHA", ADMIT.sha, 1, key, "", "", "s", MUCH, 3_600_000, *ids)


def _gauge(size: int) -> str:
    return f"{{live{size}}}:s"


def _spent(place: Place, client: Any, keys: list[str], batch: int) -> float:  # noqa: ANN401  # a client
    """Microseconds of the server for each pair of admit and finish, by its own count."""
    gauge = keys[0].endswith(":s")
    rules = ["s" if gauge else "w", MUCH, 60_000] * len(keys)
    spans = ["s" if gauge else 60_000] * len(keys)
    costs, reals = ([], []) if gauge else ([5] * len(keys), [3] * len(keys))
    place.masters[0].command("CONFIG", "RESETSTAT")
    pipeline = client.pipeline(transaction=False)
    for first in range(0, PAIRS, batch):
        ids = [f"zyxwvutsrqpo{n:x}" for n in range(first, first + batch)]
        admits = [figure for id in ids for figure in (id, *costs)]
        ends = [figure for id in ids for figure in (id, *reals)]
        pipeline.execute_command("EVALSHA", ADMIT.sha, len(keys), *keys, "", "", *rules, *admits)
        pipeline.execute_command("EVALSHA", FINISH.sha, len(keys), *keys, "", *spans, *ends)
    pipeline.execute()
    return float(client.info("commandstats")["cmdstat_evalsha"]["usec"]) / PAIRS


CURVES = Curves(
    "Time on the server",
    "What the scripts of one acquire and its finish take of the server, by its own count: one slot of a gauge in which "
    "others live already, more windows in one call, more permits in one call.",
    "µs of the server for each permit",
    measure,
)
