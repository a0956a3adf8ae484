"""The contract where scripts are gone before every call: flushed, driven out by a neighbour, or with SCRIPT denied."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import pytest_asyncio

from pyslot.adapters.base import AsyncStore, Land, PipelineStore
from pyslot.loader import Call
from tests.adapters.helpers import KINDS, Kind
from tests.conftest import GetServer, PrivateServer
from tests.contract.admission import Admission
from tests.contract.backings import AnyStore, Served
from tests.contract.clocks import Clocks
from tests.contract.places import ASYNC, Place, close
from tests.contract.scripts import A_DAY
from tests.contract.wire import SCRIPTS, G, admit, finish
from tests.proof.clients import THOROUGH
from tests.scripts.wire import Wire, connect

pytestmark = pytest.mark.asyncio(loop_scope="module")
NEIGHBOUR = 600
"""Scripts another user of the server sends by EVAL: more than the 500 or so that newer servers keep."""
_fresh = itertools.count()


def flush(wire: Wire) -> None:
    assert wire.run("SCRIPT", "FLUSH") == b"OK"


def crowd_out(wire: Wire) -> None:
    first = next(_fresh) * NEIGHBOUR
    wire.many((b"EVAL", b"return %d" % n, 0) for n in range(first, first + NEIGHBOUR))


class Before:
    """A blocking store before whose every call something happens to the server."""

    def __init__(self, store: Any, happens: Callable[[], None]) -> None:  # noqa: ANN401 - of either colour
        self.store = store
        self.happens = happens
        self.cluster = store.cluster

    def run(self, call: Call) -> Sequence[int]:
        self.happens()
        reply: Sequence[int] = self.store.run(call)
        return reply

    def close(self) -> None:
        self.store.close()


class AsyncBefore(Before):
    async def run(self, call: Call) -> Sequence[int]:  # type: ignore[override]  # the same in the other colour
        self.happens()
        reply: Sequence[int] = await self.store.run(call)
        return reply

    async def run_many(self, calls: Sequence[Call], land: Land) -> None:
        self.happens()
        await self.store.run_many(calls, land)

    async def aclose(self) -> None:
        await self.store.aclose()


ATTACKS = {"flushed": (flush, "valkey-9.1"), "crowded out": (crowd_out, "redis-8.2")}
ROWS = [(attack, kind) for attack in ATTACKS for kind in KINDS]
if not THOROUGH:
    ROWS = [("flushed", KINDS[2])]


class Attacked:
    """Places on one server under one attack, opened once."""

    def __init__(self, servers: GetServer) -> None:
        self._servers = servers
        self._open: dict[tuple[str, str], tuple[Served, AnyStore, Wire]] = {}

    def place(self, attack: str, kind: Kind) -> Place:
        happens, name = ATTACKS[attack]
        if (attack, str(kind)) not in self._open:
            server = self._servers(name)
            served, wire = Served(kind.url(server.address), [server]), Wire(server)
            store = served.open(kind.blocking)
            made: Any = (Before if kind.blocking else AsyncBefore)(store, lambda: happens(wire))
            self._open[attack, str(kind)] = served, made, wire
        served, made, _ = self._open[attack, str(kind)]
        served.clear()
        return Place(served, blocking=kind.blocking, store=made)

    async def aclose(self) -> None:
        for served, store, wire in self._open.values():
            await close(store)
            served.close()
            wire.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attacked(_servers: GetServer) -> AsyncIterator[Attacked]:
    attacked = Attacked(_servers)
    yield attacked
    await attacked.aclose()


@pytest_asyncio.fixture(loop_scope="module", params=ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
async def place(request: pytest.FixtureRequest, attacked: Attacked) -> AsyncIterator[Place]:
    attack, kind = ("flushed", KINDS[2]) if request.param in ASYNC else request.param
    place = attacked.place(attack, kind)
    yield place
    await place.close()


class TestAdmission(Admission):
    pass


class TestClocks(Clocks):
    pass


@pytest.mark.parametrize("name", ["redis-8.2", "valkey-8.1", "valkey-9.1"])
async def test_a_neighbour_does_crowd_out_what_was_only_evaluated(get_server: GetServer, name: str) -> None:
    """Else the rows above would prove nothing."""
    with connect(get_server(name)) as wire:
        wire.run("EVAL", SCRIPTS["count"].text, 1, "k", "")
        crowd_out(wire)
        assert wire.run("SCRIPT", "EXISTS", SCRIPTS["count"].sha) == [0]


async def _through_a_day(place: Place) -> None:
    for call, reply in A_DAY:
        assert await place.run(call) == reply, call.script.name


# PyrateLimiter#182; fastapi-limiter#19, #32, #68; QuantumNous/new-api#6412; upstash/ratelimit-js#122
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("attack", ATTACKS)
async def test_every_script_works_where_it_was_forgotten(attack: str, kind: Kind, attacked: Attacked) -> None:
    place = attacked.place(attack, kind)
    await _through_a_day(place)
    await place.close()


# litellm#32232
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("server_name", ["redis-6.2", "redis-8.2", "valkey-9.1"])
async def test_every_script_works_where_the_script_command_is_denied(
    kind: Kind, private_server: PrivateServer, server_name: str
) -> None:
    server = private_server(server_name, "--rename-command", "SCRIPT", "")
    with pytest.raises(RuntimeError, match="unknown command"):
        server.command("SCRIPT", "FLUSH")
    served = Served(kind.url(server.address), [server])
    place = Place(served, blocking=kind.blocking, store=served.open(kind.blocking))
    await _through_a_day(place)
    await _through_a_day(place)
    await place.close()
    await close(place.store)
    served.close()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.blocking], ids=str)
async def test_a_pipeline_sends_again_each_script_that_is_not_known(kind: Kind, get_server: GetServer) -> None:
    server = get_server("valkey-9.1")
    store = kind.open(kind.url(server.address))
    assert isinstance(store, PipelineStore)
    calls = [admit((G(5),), name) for name in ("a", "b", "c")] + [finish((G(5),), "b")]
    replies: dict[int, Sequence[int] | Exception] = {}
    await store.run_many(calls, replies.__setitem__)
    assert [next(iter(reply)) for _, reply in sorted(replies.items()) if not isinstance(reply, Exception)] == [
        1,
        1,
        1,
        2,
    ]
    assert isinstance(store, AsyncStore)
    await store.aclose()
