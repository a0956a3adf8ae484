"""What one permit costs and how many go through: ours, the bare scripts and peers, in the same interleaved rounds."""

from __future__ import annotations

import asyncio
import random
import warnings
from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

import redis
import redis.asyncio
import valkey

from bench import beside, gateway, peers
from bench.rounds import Load, compete, loaded, timed
from pyslot import AsyncLimiter, Limiter, Slots, Window
from pyslot.calls import ADMIT, FINISH, SCRIPTS
from pyslot.loader import load as load_scripts
from tests.servers.binaries import binary
from tests.servers.process import Server

MUCH = 10**9
DEADLINE = 20.0

Results = dict[str, Any]


def run(servers: list[str], *, rounds: int, seconds: float) -> Results:
    """Everything, for the report."""
    warnings.simplefilter("ignore")  # clients that wait for long; nothing here goes silent
    found: Results = {"versions": versions(), "servers": {}}
    for name in servers:
        print(name, flush=True)
        with Server(binary(name)) as server, beside.worker(server.port) as litellm:
            found["servers"][name] = {
                "version": server_version(server),
                "sync": sync(server, rounds),
                **asyncio.run(loads(server, litellm, rounds, seconds)),
                "growth": growth(server, rounds),
            }
    return found


def versions() -> dict[str, str]:
    packages = ("pyslot-limits", "redis", "valkey", "hiredis", "libvalkey", "limits", "throttled-py", "pyrate-limiter")
    known = {}
    for package in (*packages, "steindamm"):
        try:
            known[package] = version(package)
        except PackageNotFoundError:  # ours, in a checkout
            known[package] = "checkout"
    return known | {"litellm": beside.PIN} | {f"{s.name}.lua": s.sha.decode()[:12] for s in load_scripts().values()}


def server_version(server: Server) -> str:
    info = str(server.command("INFO", "server"))
    lines = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    return lines.get("valkey_version", lines["redis_version"]).strip()


def sync(server: Server, rounds: int) -> dict[str, list[float]]:
    """Microseconds a step, each round's."""
    slots, requests = Slots("pair", MUCH), Window("pair", "requests", MUCH)
    with (
        redis.Redis(port=server.port, socket_timeout=1) as client,
        valkey.Valkey(port=server.port, socket_timeout=1) as other,
        Limiter(client) as ours,
        Limiter(other) as ours_too,
        Limiter("memory://") as memory,
    ):
        for script in SCRIPTS.values():
            client.script_load(script.text)
        key = b"pyslot:v1:{bare}:s"

        def bare(client: Any) -> Callable[[], None]:  # noqa: ANN401  # either client
            def step() -> None:
                client.execute_command("EVALSHA", ADMIT.sha, 1, key, b"", b"", b"s", b"1000", b"60000", b"abcdefghijkl")
                client.execute_command("EVALSHA", FINISH.sha, 1, key, b"", b"s", b"abcdefghijkl")

            return step

        contestants: dict[str, Callable[[], object]] = {
            "pyslot, a slot, redis-py": held(ours, slots),
            "pyslot, a slot, valkey-py": held(ours_too, slots),
            "pyslot, a slot, memory": held(memory, slots),
            "pyslot, a request counted, redis-py": lambda: ours.charge(requests),
            "two bare EVALSHA, redis-py": bare(client),
            "two bare EVALSHA, valkey-py": bare(other),
            **{peer.name: peer.step for peer in peers.sync(server)},
        }
        found = timed(contestants, rounds=2 * rounds, calls=50)
    return {name: [took * 1e6 for took in times] for name, times in found.items()}


def held(limiter: Limiter, *limits: Slots | Window) -> Callable[[], None]:
    def step() -> None:
        with limiter.acquire(*limits):
            pass

    return step


async def loads(server: Server, litellm: beside.Worker | None, rounds: int, seconds: float) -> Results:  # noqa: C901  # a list
    """Loads of 64 tasks, each round's."""
    pool = redis.asyncio.BlockingConnectionPool(port=server.port, max_connections=64, timeout=DEADLINE)
    client = redis.asyncio.Redis.from_pool(pool)
    for script in SCRIPTS.values():
        await client.script_load(script.text)
    hot, full = Slots("hot", MUCH), Slots("full", 0)
    gauges = [Slots(f"g{n}", MUCH) for n in range(1_000)]
    tokens = Window("team", "tokens", MUCH)
    bare = gateway.Bare(client.execute_command)
    numbers = iter(range(MUCH))

    async with (
        AsyncLimiter(server.url, deadline=DEADLINE) as limiter,
        AsyncLimiter(server.url, deadline=DEADLINE, coalesce=False) as one_by_one,
    ):

        def slot(limiter: AsyncLimiter, gauges: list[Slots]) -> Callable[[], Awaitable[None]]:
            async def step() -> None:
                async with limiter.acquire(random.choice(gauges)):
                    pass

            return step

        async def refused() -> None:
            assert not await limiter.try_acquire(full)

        async def reserved() -> None:
            async with limiter.acquire(tokens.cost(1_000)) as permit:
                permit.settle(tokens.cost(700))

        async def bare_slot() -> None:
            id = b"abcdefghijkl%x" % next(numbers)
            key = b"bare:v1:{hot}:s"
            await client.execute_command("EVALSHA", ADMIT.sha, 1, key, b"", b"", b"s", b"1000000000", b"60000", id)
            await client.execute_command("EVALSHA", FINISH.sha, 1, key, b"", b"s", id)

        def at(step: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[Load]]:
            return lambda: loaded(step, tasks=64, seconds=seconds)

        def theirs(what: str) -> dict[str, Callable[[], Awaitable[Load]]]:
            if litellm is None:
                return {}
            ask = litellm.load
            return {"LiteLLM's limiter": lambda: asyncio.to_thread(ask, what, tasks=64, seconds=seconds)}

        scenes = {
            "gateway": {
                "pyslot": at(lambda: gateway.ours(limiter)),
                "pyslot, not coalesced": at(lambda: gateway.ours(one_by_one)),
                "bare EVALSHA, pool of 64": at(bare),
                **theirs("gateway"),
            },
            "one hot gauge": {
                "pyslot": at(slot(limiter, [hot])),
                "pyslot, not coalesced": at(slot(one_by_one, [hot])),
                "bare EVALSHA, pool of 64": at(bare_slot),
                **theirs("slot"),
                **{peer.name: at(peer.step) for peer in peers.asynchronous(server)},
            },
            "1,000 gauges": {
                "pyslot": at(slot(limiter, gauges)),
                "pyslot, not coalesced": at(slot(one_by_one, gauges)),
            },
            "refusals": {"pyslot": at(refused)},
            "reserve and settle": {"pyslot": at(reserved)},
        }
        found: Results = {}
        for name, contestants in scenes.items():
            print(" ", name, flush=True)
            raced = await compete(contestants, rounds=rounds)
            found[name] = {who: [load._asdict() for load in loads] for who, loads in raced.items()}
    await client.aclose()
    return found


def growth(server: Server, rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds of the server for a pair, by what grows; medians."""
    found: dict[str, dict[str, float]] = {"live slots": {}, "limits in a call": {}, "permits in a call": {}}
    with redis.Redis(port=server.port, protocol=2) as client:
        for script in SCRIPTS.values():
            client.script_load(script.text)
        for size in (10, 100, 1_000, 10_000, 100_000):
            key = f"{{live{size}}}:s"
            for first in range(0, size, 1_000):
                ids = [f"there{n}" for n in range(first, min(size, first + 1_000))]
                client.execute_command("EVALSHA", ADMIT.sha, 1, key, "", "", "s", MUCH, 3_600_000, *ids)
            found["live slots"][str(size)] = median(spent(server, client, [key], 1) for _ in range(rounds))
        for count in (1, 2, 4, 8, 16, 32):
            keys = [f"{{few}}:w:{n}" for n in range(count)]
            found["limits in a call"][str(count)] = median(spent(server, client, keys, 1) for _ in range(rounds))
        for batch in (1, 4, 16, 64, 256):
            taken = [spent(server, client, ["{b}:s"], batch) for _ in range(rounds)]
            found["permits in a call"][str(batch)] = median(taken)
    return found


def spent(server: Server, client: Any, keys: list[str], batch: int, pairs: int = 256) -> float:  # noqa: ANN401  # a client
    """Microseconds of the server for each pair of admit and finish."""
    gauge = keys[0].endswith(":s")
    rules = ["s" if gauge else "w", MUCH, 60_000] * len(keys)
    spans = ["s" if gauge else 60_000] * len(keys)
    costs, reals = ([], []) if gauge else ([5] * len(keys), [3] * len(keys))
    server.command("CONFIG", "RESETSTAT")
    pipeline = client.pipeline(transaction=False)
    for first in range(0, pairs, batch):
        ids = [f"abcdefghijkl{n:x}" for n in range(first, first + batch)]
        admits = [figure for id in ids for figure in (id, *costs)]
        ends = [figure for id in ids for figure in (id, *reals)]
        pipeline.execute_command("EVALSHA", ADMIT.sha, len(keys), *keys, "", "", *rules, *admits)
        pipeline.execute_command("EVALSHA", FINISH.sha, len(keys), *keys, "", *spans, *ends)
    pipeline.execute()
    return float(client.info("commandstats")["cmdstat_evalsha"]["usec"]) / pairs
