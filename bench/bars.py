"""The bars: what must hold on Valkey 9.1, as ratios within one run. `python -m bench.bars` fails if one falls short."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import redis
import redis.asyncio
import valkey
import valkey.asyncio

from bench import beside, gateway
from bench.beside import Worker
from bench.rounds import Load, Ratio, compete, loaded, rates, ratio, timed
from pyslot import AsyncLimiter, Limiter, Slots, Window
from pyslot.calls import ADMIT, FINISH, SCRIPTS
from tests.servers.binaries import binary
from tests.servers.process import Server

Client = Any
MUCH = 10**9
DEADLINE = 20.0
"""Seconds: on a busy machine a pool of 128 takes its time, and none of this is about time-outs."""


class Bar(NamedTuple):
    name: str
    figure: str
    wanted: str
    reached: bool


class Run(NamedTuple):
    """How much is run, and on what."""

    server: Server
    litellm: Worker | None
    rounds: int
    seconds: float
    """How long each load lasts in each round."""


def at_most(name: str, found: Ratio, most: float) -> Bar:
    return Bar(name, str(found), f"at most {most:g}", found.value <= most)


def at_least(name: str, found: Ratio, least: float) -> Bar:
    return Bar(name, str(found), f"at least {least:g}", found.value >= least)


def bars(rounds: int, seconds: float) -> Iterator[Bar]:
    with Server(binary("valkey-9.1")) as server, beside.worker(server.port) as litellm:
        for name, library, most in (("redis-py", redis, 1.15), ("valkey-py", valkey, 1.2)):
            yield at_most(f"sync pair against the scripts bare, {name}", pair(library, server, rounds), most)
        yield from asyncio.run(under_load(Run(server, litellm, rounds, seconds)))
        yield from on_server(server, litellm, rounds)
        yield from per_window(server, rounds)
        yield at_most("time on the server at 100,000 live slots against 10, Valkey 9.1", growth(server, rounds), 1.3)
        yield expired(server)
        yield memory(server, 110, "Valkey 9.1")
    with Server(binary("redis-7.0")) as server:
        yield at_most("time on the server at 100,000 live slots against 10, Redis 7.0", growth(server, rounds), 2.0)
        yield memory(server, 160, "Redis 7.0")
    yield at_least("memory store against the embedded server, sync pairs", memory_store(rounds), 8)


# One caller


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

        key = b"pyslot:v1:{bare}:s"
        admit = ("EVALSHA", ADMIT.sha, 1, key, b"", b"", b"s", b"1000", b"60000", b"0123456789ab0")
        finish = ("EVALSHA", FINISH.sha, 1, key, b"", b"s", b"0123456789ab0")
        load(client)

        def bare() -> None:
            client.execute_command(*admit)
            client.execute_command(*finish)

        found = timed({"ours": ours, "bare": bare}, rounds=4 * rounds, calls=100)
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


# Many callers


async def under_load(run: Run) -> Iterator[Bar]:
    found: list[Bar] = []
    for name, library, least in (("redis-py", redis, 1.4), ("valkey-py", valkey, 1.7)):
        pool = library.asyncio.BlockingConnectionPool(port=run.server.port, max_connections=128, timeout=DEADLINE)
        made = library.asyncio.Redis if library is redis else library.asyncio.Valkey
        bare = made.from_pool(pool)
        async with AsyncLimiter(made(port=run.server.port), deadline=DEADLINE) as limiter:
            for script in SCRIPTS.values():
                await bare.script_load(script.text)
            for count, wanted in ((1, 8.0), (1_000, least)):
                faster = await hammered(limiter, bare, count, run)
                what = (
                    f"128 tasks, {count:,} gauge{'s' if count > 1 else ''}, pairs a second against one EVALSHA a step"
                )
                found.append(at_least(f"{what}, {name}", faster, wanted))
            if library is redis:
                found += await at_the_gateway(limiter, run)
                found.append(await alone(run))
        await bare.aclose()
    return iter(found)


async def hammered(limiter: AsyncLimiter, bare: Client, count: int, run: Run) -> Ratio:
    gauges = [Slots(f"g{n}", MUCH) for n in range(count)]
    keys = [b"bare:v1:{g%d}:s" % n for n in range(count)]
    ids = iter(range(MUCH))

    async def ours() -> None:
        async with limiter.acquire(random.choice(gauges)):
            pass

    async def one_by_one() -> None:
        key, id = random.choice(keys), b"abcdefghijkl%x" % next(ids)
        await bare.execute_command("EVALSHA", ADMIT.sha, 1, key, b"", b"", b"s", b"1000000000", b"60000", id)
        await bare.execute_command("EVALSHA", FINISH.sha, 1, key, b"", b"s", id)

    loads = await compete(
        {
            "ours": lambda: loaded(ours, tasks=128, seconds=run.seconds),
            "bare": lambda: loaded(one_by_one, tasks=128, seconds=run.seconds),
        },
        rounds=run.rounds,
    )
    return ratio(rates(loads["ours"]), rates(loads["bare"]))


async def at_the_gateway(limiter: AsyncLimiter, run: Run) -> list[Bar]:
    found: list[Bar] = []
    litellm, seconds = run.litellm, run.seconds
    pool = redis.asyncio.BlockingConnectionPool(port=run.server.port, max_connections=64, timeout=DEADLINE)
    client = redis.asyncio.Redis.from_pool(pool)
    bare = gateway.Bare(client.execute_command)
    slots = Slots("hot", MUCH)

    async def hot() -> None:
        async with limiter.acquire(slots):
            pass

    contestants = {
        "ours": lambda: loaded(lambda: gateway.ours(limiter), tasks=64, seconds=seconds),
        "bare": lambda: loaded(bare, tasks=64, seconds=seconds),
        "hot": lambda: loaded(hot, tasks=64, seconds=seconds),
    }
    if litellm:
        # In its own process, while ours waits.
        for what in ("gateway", "slot"):

            async def theirs(what: str = what) -> Load:
                return await asyncio.to_thread(litellm.load, what, tasks=64, seconds=seconds)

            contestants[f"litellm {what}"] = theirs
    loads = await compete(contestants, rounds=run.rounds)
    await client.aclose()
    faster = ratio(rates(loads["ours"]), rates(loads["bare"]))
    found.append(at_least("the gateway's requests a second against two EVALSHA over a pool of 64", faster, 1.5))
    tails = ratio([load.p99 for load in loads["ours"]], [load.p99 for load in loads["bare"]])
    found.append(at_most("the gateway's p99 against the same", tails, 1.0))
    for what, mine, least in (("slot", "hot", 20), ("gateway", "ours", 5)):
        if litellm:
            far = ratio(rates(loads[mine]), rates(loads[f"litellm {what}"]))
            found.append(at_least(f"{what} against LiteLLM's limiter, 64 tasks", far, least))
        else:
            found.append(Bar(f"{what} against LiteLLM's limiter", "no litellm: make bench-litellm", f"{least}", False))
    return found


async def alone(run: Run) -> Bar:
    """A lone call through the coalescing path and past it."""
    waits: dict[bool, list[float]] = {True: [], False: []}
    slots = Slots("alone", 10)
    async with (
        AsyncLimiter(run.server.url, deadline=DEADLINE) as joined,
        AsyncLimiter(run.server.url, deadline=DEADLINE, coalesce=False) as direct,
    ):
        for _ in range(4 * run.rounds):
            for limiter, name in ((joined, True), (direct, False)):
                began = time.perf_counter()
                for _ in range(50):
                    async with limiter.acquire(slots):
                        pass
                waits[name].append(time.perf_counter() - began)
    return at_most("a lone call through the coalescing path", ratio(waits[True], waits[False]), 1.1)


# On the server


def server_time(server: Server, client: Client, commands: list[tuple[object, ...]]) -> float:
    """Microseconds the server spends on script calls, by its own count."""
    server.command("CONFIG", "RESETSTAT")
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    pipeline.execute()
    return float(client.info("commandstats")["cmdstat_evalsha"]["usec"])


def admit(key: bytes, *ids: bytes, lease: int = 60_000) -> tuple[object, ...]:
    return ("EVALSHA", ADMIT.sha, 1, key, b"", b"", b"s", b"1000000000", b"%d" % lease, *ids)


def pairs(key: bytes, count: int, batch: int) -> list[tuple[object, ...]]:
    commands = []
    for first in range(0, count, batch):
        ids = [b"abcdefghijkl%x" % n for n in range(first, first + batch)]
        commands += [admit(key, *ids), ("EVALSHA", FINISH.sha, 1, key, b"", b"s", *ids)]
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
        found: dict[str, list[float]] = {}
        for _ in range(4 * rounds):
            for name, commands in contestants.items():
                found.setdefault(name, []).append(server_time(server, client, commands))
    what = "time on the server of a pair against LiteLLM's two scripts"
    yield at_most(f"{what}, single", ratio(found["1"], found["theirs"]), 1.2)
    yield at_most(f"{what}, in batches of 64", ratio(found["64"], found["theirs"]), 0.4)


def fill(client: Client, key: bytes, count: int) -> None:
    for first in range(0, count, 1_000):
        ids = [b"abcdefghijkl%x" % n for n in range(first, min(count, first + 1_000))]
        client.execute_command(*admit(key, *ids, lease=3_600_000))


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
                taken = server_time(server, client, [admit(key, id) for id in ids])
                client.execute_command("EVALSHA", FINISH.sha, 1, key, b"", b"s", *ids)
                found.setdefault(count, []).append(taken)
    return ratio(found[100_000], found[10])


def expired(server: Server) -> Bar:
    """How long one call holds the server that meets 100,000 slots whose leases have ended."""
    with client_of(redis, server) as client:
        key, worst = b"{expired}:s", 0.0
        for _ in range(5):
            for first in range(0, 100_000, 1_000):
                client.zadd(key, {b"abcdefghijkl%x" % n: 1_000 + n for n in range(first, first + 1_000)})
            worst = max(worst, server_time(server, client, [admit(key, b"new")]) / 1_000)
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


def main() -> None:
    warnings.simplefilter("ignore")  # these clients may wait for long; nothing here goes silent
    gc.freeze()
    quick = "--quick" in sys.argv
    missed = 0
    found = []
    for bar in bars(rounds=3 if quick else 9, seconds=0.4 if quick else 1.0):
        found.append(bar._asdict())
        missed += not bar.reached
        print(f"{'reached' if bar.reached else 'MISSED ':8} {bar.name}: {bar.figure}, wanted {bar.wanted}", flush=True)
    results = Path("bench/results")
    results.mkdir(exist_ok=True)
    (results / "bars.json").write_text(json.dumps(found, indent=2) + "\n")
    sys.exit(f"{missed} bars missed" if missed else 0)


if __name__ == "__main__":
    main()
