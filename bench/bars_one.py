"""Bars with one caller, blocking."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import redis

from bench import bare
from bench.bar import MUCH, Bar, at_most
from bench.rounds import Ratio, ratio, timed
from pyslot import Limiter, Slots, Window
from pyslot.calls import SCRIPTS
from tests.servers.process import Server

Client = Any


def client_of(library: Any, server: Server) -> Client:  # noqa: ANN401  # a client library
    made = library.Redis if library is redis else library.Valkey
    return made(port=server.port, socket_timeout=1)


def pair(library: Any, server: Server, rounds: int) -> Ratio:  # noqa: ANN401  # a client library
    """Acquire and finish one slot, against the library's two commands sent by hand through the same client."""
    with client_of(library, server) as client, Limiter(client) as limiter:
        slots = Slots("pair", 1_000)

        def ours() -> None:
            with limiter.acquire(slots):
                pass

        key, id = b"pyslot:v1:{bare}:s", b"0123456789ab0"
        take, give = bare.take(key, id, limit=b"1000"), bare.give(key, id)
        load(client)

        def by_hand() -> None:
            client.execute_command(*take)
            client.execute_command(*give)

        found = timed({"ours": ours, "bare": by_hand}, rounds=4 * rounds, calls=100)
    return ratio(found["ours"], found["bare"])


def load(client: Client) -> None:
    for script in SCRIPTS.values():
        client.script_load(script.text)


def per_window(server: Server, rounds: int) -> Iterator[Bar]:
    """What one more window costs, in round trips of a bare EVALSHA that does nothing."""
    few, many = 1, 9
    with client_of(redis, server) as client, Limiter(client) as limiter:
        sha = client.script_load("return 1")
        admits: dict[str, list[float]] = {}
        both: dict[str, list[float]] = {}
        for _ in range(4 * rounds):
            began = time.perf_counter()
            for _ in range(50):
                client.execute_command("EVALSHA", sha, 0)
            admits.setdefault("bare", []).append((time.perf_counter() - began) / 50)
            for count in (few, many):
                windows = [Window("w", f"meter{n}", MUCH) for n in range(count)]
                taken = whole = 0.0
                for _ in range(50):
                    began = time.perf_counter()
                    permit = limiter.try_acquire(*[window.cost(5) for window in windows]).require()
                    taken += time.perf_counter() - began
                    permit.settle(*[window.cost(3) for window in windows])
                    permit.finish()
                    whole += time.perf_counter() - began
                admits.setdefault(str(count), []).append(taken / 50)
                both.setdefault(str(count), []).append(whole / 50)
    for name, found, most in (("admit", admits, 0.15), ("admit and finish", both, 0.25)):
        further = [(b - a) / (many - few) for a, b in zip(found[str(few)], found[str(many)], strict=True)]
        yield at_most(f"one more window in {name}, in round trips", ratio(further, admits["bare"]), most)


def memory_store(rounds: int) -> Ratio:
    slots = Slots("pair", 1_000)
    with Limiter("memory://") as fast, Limiter("embedded://") as server:
        # embedded:// takes valkey-py where that is installed; the bar is about redis-py.
        url = server._store.url  # type: ignore[attr-defined]  # only the embedded store has one
        with Limiter(url.replace("valkey+unix", "redis+unix")) as slow:
            steps = {name: hold(limiter, slots) for name, limiter in (("memory", fast), ("server", slow))}
            found = timed(steps, rounds=4 * rounds, calls=100)
    return ratio(found["server"], found["memory"])


def hold(limiter: Limiter, slots: Slots) -> Callable[[], None]:
    def run() -> None:
        with limiter.acquire(slots):
            pass

    return run
