"""What one permit costs through the library, against the same scripts sent bare and against the client's floor."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import redis
import valkey

from pyslot import Limiter, Slots, Window
from pyslot.calls import SCRIPTS
from tests.servers.binaries import binary
from tests.servers.process import Server

ROUNDS = 30
PAIRS = 200

Client = Any


def main() -> None:
    """Print the ratios, a line each, and the commands of a request over 12 limits."""
    with Server(binary("valkey-9.1")) as server:
        print(f"valkey 9.1 on loopback, {ROUNDS} interleaved rounds of {PAIRS} pairs, medians")
        for name, client in (
            ("redis-py", redis.Redis(port=server.port, socket_timeout=1)),
            ("valkey-py", valkey.Valkey(port=server.port, socket_timeout=1)),
        ):
            with client:
                version = {"redis-py": redis, "valkey-py": valkey}[name].__version__
                print(f"{name} {version}: one slot, acquire + finish, sync")
                for what, ratio, spread in pairs(client):
                    print(f"  {ratio:5.2f} times (middle half {spread}) the cost of {what}")
        print(f"a request over 12 limits in one tag: {commands(server)}")


def pairs(client: Client) -> Iterator[tuple[str, float, str]]:
    """The library's pair against each baseline."""
    rounds: dict[str, list[float]] = {}
    with Limiter(client) as limiter:
        slots = Slots("bench", 1_000)

        def ours() -> None:
            with limiter.acquire(slots):
                pass

        variants = {"ours": ours, "the same scripts bare": bare(client), "two EVALSHA of `return 1`": floor(client)}
        for _ in range(ROUNDS):
            for name, run in variants.items():
                began = time.perf_counter()
                for _ in range(PAIRS):
                    run()
                rounds.setdefault(name, []).append(time.perf_counter() - began)
    for name in list(variants)[1:]:
        ratios = sorted(a / b for a, b in zip(rounds["ours"], rounds[name], strict=True))
        yield name, median(ratios), f"{ratios[len(ratios) // 4]:.2f} to {ratios[-len(ratios) // 4]:.2f}"


def bare(client: Client) -> Callable[[], None]:
    """The library's own two commands, as it sends them, without the library."""
    key = b"pyslot:v1:{bare}:s"
    admit = ("EVALSHA", SCRIPTS["admit"].sha, 1, key, b"", b"", b"s", b"1000", b"60000", b"0123456789ab0")
    finish = ("EVALSHA", SCRIPTS["finish"].sha, 1, key, b"", b"s", b"0123456789ab0")
    for name in ("admit", "finish"):
        client.script_load(SCRIPTS[name].text)

    def run() -> None:
        client.execute_command(*admit)
        client.execute_command(*finish)

    return run


def floor(client: Client) -> Callable[[], None]:
    """Two round trips of a script that does nothing."""
    sha = client.script_load("return 1")

    def run() -> None:
        client.execute_command("EVALSHA", sha, 0)
        client.execute_command("EVALSHA", sha, 0)

    return run


@contextmanager
def counted(server: Server) -> Iterator[dict[str, int]]:
    """The commands clients send while the block runs, by name; those within scripts are not clients'."""
    seen: dict[str, int] = {}
    server.command("CONFIG", "RESETSTAT")
    yield seen
    for line in str(server.command("INFO", "commandstats")).splitlines():
        if line.startswith(("cmdstat_eval", "cmdstat_evalsha")):
            name, _, figures = line.partition(":")
            seen[name.removeprefix("cmdstat_")] = int(figures.split(",")[0].removeprefix("calls="))


def commands(server: Server) -> str:
    """Count what a request over slots, requests and tokens of four subjects sends."""
    names = ("key:a", "team:b", "user:c", "model:d")
    with Limiter(server.url) as limiter:
        for _ in range(2):
            with counted(server) as seen:
                asked = [
                    limit
                    for name in names
                    for limit in (
                        Slots(name, 10, tag="org:e"),
                        Window(name, "requests", 100, tag="org:e"),
                        Window(name, "tokens", 100_000, tag="org:e").cost(1_000),
                    )
                ]
                with limiter.acquire(*asked) as permit:
                    permit.settle(*(limit for limit in asked if not isinstance(limit, Slots | Window)))
    return json.dumps(seen)
