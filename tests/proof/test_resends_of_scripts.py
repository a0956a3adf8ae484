"""Every script, sent again by its client because of what a network did to it: one effect, and a true reply."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from pyslot import StoreUnavailable
from pyslot.adapters.base import AsyncStore
from pyslot.loader import Call
from pyslot.model import Gauge, Model
from tests.contract.backings import AnyStore, Served
from tests.contract.places import START
from tests.contract.wire import (
    GAUGE,
    OTHER_GAUGE,
    OTHER_WINDOW,
    WINDOW,
    G,
    W,
    acquire,
    admit,
    count,
    finish,
    peek,
    release,
    renew,
    reserve,
    reset,
    settle,
)
from tests.proof.clients import WAYS, Way, target
from tests.scripts.wire import connect
from tests.servers.process import Server
from tests.servers.proxy import Do, Proxy

NOW = b"%d" % START
ALL = (G(2), W(100), G(2, key=OTHER_GAUGE), W(100, key=OTHER_WINDOW))
TWO = admit(ALL, ("a", 30, 40), ("b", 1, 2))


class Operation(NamedTuple):
    name: str
    before: Sequence[Call]
    call: Call


OPERATIONS = (
    Operation("acquire", [], acquire([G(2)], "a")),
    Operation("acquire the last", [acquire([G(2)], "x")], acquire([G(2)], "a")),
    Operation("acquire many", [], acquire([G(3)], "a", "b", "a", "c", "d")),
    Operation("acquire refused", [acquire([G(1)], "x")], acquire([G(1)], "a")),
    Operation("rejoin", [acquire([G(1)], "x")], acquire([G(1)], "a", mode="rejoin")),
    Operation("renew", [acquire([G(2, 1000)], "a", "b")], renew([G(2, 90_000)], "a", "z")),
    Operation("release", [acquire([G(2)], "a", "b")], release([G(2)], "a")),
    Operation("reserve", [reserve([W(100)], ("x", 5))], reserve([W(100)], ("a", 60))),
    Operation("reserve many", [], reserve([W(100)], ("a", 60), ("b", 60), ("c", 40))),
    Operation("settle", [reserve([W(100)], ("a", 60), ("b", 5))], settle([W(100)], ("a", 75))),
    Operation("settle down", [reserve([W(100)], ("a", 60), ("b", 5))], settle([W(100)], ("a", 0), ("b", "-"))),
    Operation("admit", [], TWO),
    Operation("admit the rest", [acquire([ALL[0]], "a")], TWO),
    Operation("finish", [TWO], finish(ALL, ("a", 3, "-"))),
    Operation("undo", [TWO], finish(ALL, ("a", 0, 0), ("z", 0, 0))),
    Operation("reset", [TWO], reset(*ALL)),
    Operation("dry", [TWO], admit(ALL, ("c", 1, 1), mode="dry")),
    Operation("count", [TWO], count(G(2))),
    Operation("peek", [TWO], peek(*ALL)),
)

ANSWERED = {
    "lost reply": [Do.LOSE],
    "lost replies": [Do.LOSE] * 3,
    "cut before it ran": [Do.CUT],
    "late reply": [Do.MUTE],
    "late replies": [Do.MUTE, Do.LOSE, Do.MUTE],
    "never delivered": [Do.SWALLOW],
    "delivered after the one sent again": [Do.HOLD],
    "all of it": [Do.SWALLOW, Do.LOSE, Do.HOLD],
}
OURS = ("lost reply", "cut before it ran")
"""What clients that we make put up with: they send again what was dropped, once, and leave the rest to the caller."""
UNANSWERED = {"late reply": Do.MUTE, "lost reply": Do.LOSE, "never delivered": Do.SWALLOW, "delivered late": Do.HOLD}
THREADS = ThreadPoolExecutor(len(OPERATIONS), "attack")
RUNS = {Do.PASS, Do.LOSE, Do.MUTE}


def driven(call: Call, name: str) -> Call:
    """At the tests' time, under keys of the operation's own."""
    own = name.encode() + b":"
    return call._replace(keys=tuple(own + key for key in call.keys), head=(NOW, *call.head[1:])[: len(call.head)])


async def run(store: AnyStore, call: Call) -> list[int]:
    if isinstance(store, AsyncStore):
        return list(await store.run(call))
    return list(await asyncio.get_running_loop().run_in_executor(THREADS, store.run, call))


def on_model(operation: Operation, times: int) -> tuple[list[int], dict[bytes, dict[str, int]]]:
    """The last reply and the data after the operation has run so many times."""
    model = Model(lambda: START)
    reply: list[int] = []
    for call in [*operation.before, *[operation.call] * times]:
        sent = driven(call, operation.name)
        reply = model.run(sent.script.name, sent.keys, sent.head + sent.permits)
    found: dict[bytes, dict[str, int]] = {}
    for key, value in model.data.items():
        if isinstance(value, Gauge):
            found[key] = {id.decode(): end for id, end in value.held.items()}
        else:
            found[key] = {"s": value.start, "n": value.used}
            found[key] |= {f":{id.decode()}": units for id, units in value.charges.items()}
    return reply, found


def on_server(served: Served, operation: Operation) -> dict[bytes, dict[str, int]]:
    keys = [operation.name.encode() + b":" + key for key in (GAUGE, OTHER_GAUGE, WINDOW, OTHER_WINDOW)]
    return {key: found for key in keys if (found := served.members(key))}


async def attack(way: Way, behind: Server, plan: Sequence[Do], operation: Operation, *, answered: bool) -> None:
    """One operation through a proxy and a client of its own."""
    served = Served(behind.url, [behind])
    with Proxy(behind.port) as proxy:
        async with target(way, proxy.port) as client:
            store = way.kind.open(client, 10.0 if answered else 1.5)
            with connect(behind) as wire:
                for call in operation.before:
                    ready = driven(call, operation.name)
                    wire.run(b"EVALSHA", ready.script.sha, len(ready.keys), *ready.keys, *ready.head, *ready.permits)
            if answered:
                proxy.plan(*plan)
                reply = await run(store, driven(operation.call, operation.name))
            else:
                proxy.always(*plan)
                with pytest.raises(StoreUnavailable):
                    await run(store, driven(operation.call, operation.name))
            attempts = list(proxy.seen)
            ran = sum(attempt.did in RUNS for attempt in attempts)
            assert len(attempts) >= (len(plan) if answered else 1 + way.passed), operation.name
            if answered:
                # The last one sent need not be the last to run, where one was slower than its client's patience.
                assert reply in [on_model(operation, n)[0] for n in range(1, ran + 1)], (operation.name, attempts)
            assert on_server(served, operation) == on_model(operation, min(ran, 1))[1], operation.name
            if proxy.deliver():
                assert on_server(served, operation) == on_model(operation, 1)[1], operation.name
            if isinstance(store, AsyncStore):
                await store.aclose()
            else:
                store.close()
    served.close()


async def attack_all(way: Way, behind: Server, plan: Sequence[Do], *, answered: bool) -> None:
    async with asyncio.TaskGroup() as group:
        for operation in OPERATIONS:
            group.create_task(attack(way, behind, plan, operation, answered=answered))


# redis-py#261, redis-py#3559, redis/jedis#3187, rate-limit-redis#251
@pytest.mark.parametrize(
    ("way", "fault"),
    [(way, fault) for way in WAYS for fault in ANSWERED if way.passed or fault in OURS],
    ids=str,
)
async def test_sent_again_it_takes_effect_once(way: Way, behind: Server, fault: str) -> None:
    await attack_all(way, behind, ANSWERED[fault], answered=True)


@pytest.mark.parametrize("fault", UNANSWERED)
async def test_given_up_it_took_effect_once_or_not_at_all(way: Way, behind: Server, fault: str) -> None:
    await attack_all(way, behind, [UNANSWERED[fault]], answered=False)
