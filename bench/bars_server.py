"""Bars of the server's time and memory, by its own count."""

from __future__ import annotations

from collections.abc import Iterator

import redis

from bench import bare
from bench.bar import Bar, at_most
from bench.bars_one import Client, client_of, load
from bench.beside import Worker
from bench.rounds import Ratio, ratio
from pyslot.calls import RELEASE
from tests.servers.process import Server

COMMANDS_ALONE = (
    """redis.call('TIME') redis.call('ZCARD', KEYS[1]) redis.call('ZADD', KEYS[1], 1e13, ARGV[#ARGV])
    redis.call('PEXPIRE', KEYS[1], 7260000) return {1, 0, 1, 60000, 0}""",
    """redis.call('TIME') redis.call('ZMSCORE', KEYS[1], ARGV[#ARGV]) redis.call('ZREM', KEYS[1], ARGV[#ARGV])
    return {2, 1}""",
)
"""The commands that acquire and release run for one slot of an empty gauge, and nothing besides."""


def server_time(server: Server, client: Client, commands: list[tuple[object, ...]]) -> float:
    """Microseconds the server spends on script calls, by its own count."""
    server.command("CONFIG", "RESETSTAT")
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    pipeline.execute()
    return float(client.info("commandstats")["cmdstat_evalsha"]["usec"])


def pairs(key: bytes, count: int, batch: int) -> list[tuple[object, ...]]:
    commands: list[tuple[object, ...]] = []
    for first in range(0, count, batch):
        ids = [b"abcdefghijkl%x" % n for n in range(first, first + batch)]
        commands += [bare.take(key, *ids), bare.give(key, *ids)]
    return commands


def on_server(server: Server, litellm: Worker | None, rounds: int) -> Iterator[Bar]:
    if not litellm:
        yield Bar("server time against LiteLLM's scripts", "no litellm: make bench-litellm", "1.2 and 0.4", False)
        return
    with client_of(redis, server) as client:
        texts = litellm.ask(what="scripts")
        acquire, release = client.script_load(texts["acquire"]), client.script_load(texts["release"])
        load(client)
        theirs: list[tuple[object, ...]] = []
        for n in range(512):
            theirs += [
                ("EVALSHA", acquire, 1, "{hot}:gauge", 1_000, 600, f"{n:032x}"),
                ("EVALSHA", release, 1, "{hot}:gauge", f"{n:032x}"),
            ]
        contestants = {"theirs": theirs, "1": pairs(b"{k}:s", 512, 1), "64": pairs(b"{k}:s", 512, 64)}
        first, last = (client.script_load(text) for text in COMMANDS_ALONE)
        contestants["floor"] = [
            (name, last if command[1] == RELEASE.sha else first, *rest)
            for command in contestants["1"]
            for name, _, *rest in [command]
        ]
        found: dict[str, list[float]] = {}
        for _ in range(4 * rounds):
            for name, commands in contestants.items():
                found.setdefault(name, []).append(server_time(server, client, commands))
    what = "time on the server of a pair against LiteLLM's two scripts"
    yield at_most(f"{what}, single", ratio(found["1"], found["theirs"]), 1.2, ratio(found["floor"], found["theirs"]))
    yield at_most(f"{what}, in batches of 64", ratio(found["64"], found["theirs"]), 0.4)


def fill(client: Client, key: bytes, count: int) -> None:
    for first in range(0, count, 1_000):
        ids = [b"abcdefghijkl%x" % n for n in range(first, min(count, first + 1_000))]
        client.execute_command(*bare.take(key, *ids, lease=b"3600000"))


def growth(server: Server, rounds: int) -> Ratio:
    with client_of(redis, server) as client:
        load(client)
        found: dict[int, list[float]] = {}
        sizes = {count: b"{grown%d}:s" % count for count in (10, 100_000)}
        for count, key in sizes.items():
            fill(client, key, count)
        for _ in range(4 * rounds):
            for count, key in sizes.items():
                ids = [b"another%x" % n for n in range(256)]
                taken = server_time(server, client, [bare.take(key, id) for id in ids])
                client.execute_command(*bare.give(key, *ids))
                found.setdefault(count, []).append(taken)
    return ratio(found[100_000], found[10])


def expired(server: Server) -> Bar:
    """How long one call holds the server that meets 100,000 slots whose leases have ended."""
    with client_of(redis, server) as client:
        key, worst = b"{expired}:s", 0.0
        for _ in range(5):
            for first in range(0, 100_000, 1_000):
                client.zadd(key, {b"abcdefghijkl%x" % n: 1_000 + n for n in range(first, first + 1_000)})
            worst = max(worst, server_time(server, client, [bare.take(key, b"new")]) / 1_000)
            left = client.zcard(key)
            assert left == 99_001, left
            client.unlink(key)
    return Bar("100,000 expired slots hold the server for", f"{worst:.2f} ms", "at most 5 ms", worst <= 5)


def memory(server: Server, most: int, name: str) -> Bar:
    with client_of(redis, server) as client:
        load(client)
        fill(client, b"{memory}:s", 10_000)
        each = client.memory_usage("{memory}:s", samples=0) / 10_000
    return Bar(f"bytes on the server for each of 10,000 slots, {name}", f"{each:.0f}", f"at most {most}", each <= most)
