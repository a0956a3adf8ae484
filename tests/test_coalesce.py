"""Calls that wait together travel together, and nobody comes to harm by his company."""

from __future__ import annotations

import asyncio
import gc
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import pytest

from pyslot import AsyncLimiter, AsyncPermit, Slots, StoreError, StoreUnavailable, Window
from pyslot.adapters.base import Land
from pyslot.calls import SCRIPTS
from pyslot.coalesce import CALLS, FLIGHTS, KEYED, LONG, PERMITS, TURN, WOKEN, Coalescer
from pyslot.loader import Call
from tests.conftest import GetCluster, GetServer
from tests.servers.process import Cluster, Server

NEWEST = "valkey-9.1"


class Airport:
    """A store that notes what it is sent, and answers when it is told to: every permit with its own name."""

    cluster = False

    def __init__(self) -> None:
        self.sent: list[list[Call]] = []
        """Each write, with the calls in it."""
        self.gates: list[asyncio.Future[None]] = []
        self.lands: list[Land] = []
        """For each write, how to answer one of its calls before the others."""

    async def _fly(self, calls: Sequence[Call], land: Land = lambda *_: None) -> None:
        self.sent.append(list(calls))
        self.lands.append(land)
        gate = asyncio.get_running_loop().create_future()
        self.gates.append(gate)
        await gate

    async def run(self, call: Call) -> Sequence[int]:
        await self._fly([call])
        return _echo(call)

    async def run_many(self, calls: Sequence[Call], land: Land) -> None:
        await self._fly(calls, land)
        for at, call in enumerate(calls):
            land(at, StoreError("bad key") if call.keys == (b"bad",) else _echo(call))

    async def aclose(self) -> None: ...

    async def land(self, error: Exception | None = None) -> None:
        """Answer what was sent first of all that is unanswered, and let everybody do what follows from it."""
        gate = next(gate for gate in self.gates if not gate.done())
        if error:
            gate.set_exception(error)
        else:
            gate.set_result(None)
        await settle()

    @property
    def in_flight(self) -> int:
        return sum(not gate.done() for gate in self.gates)


class OneByOne(Airport):
    """As a cluster's client: it takes no pipelines of scripts."""

    cluster = True

    async def run_many(self, calls: Sequence[Call], land: Land) -> None:  # noqa: ARG002  # a store's signature
        raise AssertionError(f"a cluster's client refuses to take {len(calls)} calls at once")


def _echo(call: Call) -> list[int]:
    return [figure for permit in call.permits for figure in (int(permit), 7)]


def a_call(permit: int, key: bytes = b"k", rule: bytes = b"5") -> Call:
    return Call(SCRIPTS["admit"], (key,), (b"", b"", b"s", rule, b"60000"), (b"%d" % permit,))


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


def start(coalescer: Coalescer, calls: Iterable[Call]) -> list[asyncio.Task[Sequence[int]]]:
    return [asyncio.create_task(ask(coalescer, call)) for call in calls]


def coalescing(store: Airport, deadline: float = 1) -> Coalescer:
    """On the running loop."""
    return Coalescer(store, deadline, asyncio.get_running_loop())


async def ask(coalescer: Coalescer, call: Call) -> Sequence[int]:
    return await coalescer.run(call)


async def test_a_call_on_an_idle_limiter_is_sent_at_once() -> None:
    """Before the event loop turns once: nothing waits for company."""
    store = Airport()
    running = coalescing(store).run(a_call(1)).__await__()
    next(running)
    assert store.sent == [[a_call(1)]]
    running.close()


async def test_what_waits_joins_the_next_call_in_order() -> None:
    """Each gets its own part of the reply."""
    store = Airport()
    tasks = start(coalescing(store), [a_call(n) for n in range(10)])
    await settle()
    assert store.sent == [[a_call(0)]]
    await store.land()
    joined = a_call(0)._replace(permits=tuple(b"%d" % n for n in range(1, 10)))
    assert store.sent[1:] == [[joined]]
    await store.land()
    assert [await task for task in tasks] == [[n, 7] for n in range(10)]
    assert store.in_flight == 0


async def test_clean_up_leaves_behind_what_is_in_flight() -> None:
    """An undo that overtook the call it undoes would find nothing, and a slot would be held by nobody."""
    store = Airport()
    coalescer = coalescing(store)
    tasks = start(coalescer, [a_call(n) for n in range(3)])
    await settle()
    await store.land()
    undo = asyncio.create_task(coalescer.run_late(a_call(9, b"other")))
    await settle()
    assert len(store.sent) == 2
    await store.land()
    assert store.sent[2] == [a_call(9, b"other")]
    await store.land()
    assert await undo == [9, 7]
    assert [await task for task in tasks] == [[0, 7], [1, 7], [2, 7]]


async def test_other_rules_never_join() -> None:
    """One key under two rules is two calls."""
    store = Airport()
    tasks = start(coalescing(store), [a_call(n, rule=b"%d" % (n % 2)) for n in range(6)])
    await settle()
    while store.in_flight:
        await store.land()
    assert [await task for task in tasks] == [[n, 7] for n in range(6)]
    for call in [call for calls in store.sent for call in calls]:
        assert {int(permit) % 2 for permit in call.permits} == {int(call.head[3])}


async def test_ready_together_shares_a_pipeline() -> None:
    """Calls over different keys leave in one write, bounded, and no more writes are under way than are of use."""
    store = Airport()
    tasks = start(coalescing(store), [a_call(n, b"k%d" % n) for n in range(CALLS * 2 * FLIGHTS)])
    await settle()
    assert [len(calls) for calls in store.sent] == [1] + [CALLS] * (FLIGHTS - 1)
    assert store.in_flight == FLIGHTS
    while store.in_flight:
        await store.land()
        assert store.in_flight <= FLIGHTS
    assert [len(calls) for calls in store.sent] == [1] + [CALLS] * (2 * FLIGHTS - 1) + [CALLS - 1]
    assert [await task for task in tasks] == [[n, 7] for n in range(CALLS * 2 * FLIGHTS)]


async def test_each_goes_on_when_its_own_reply_is_there() -> None:
    """Not when the last of its pipeline is: what they do next travels while the server works on the rest."""
    store = Airport()
    coalescer = coalescing(store)
    tasks = start(coalescer, [a_call(n, b"k%d" % min(n, 3)) for n in range(6)])
    await settle()
    await store.land()
    assert [len(calls) for calls in store.sent] == [1, 3]
    store.lands[1](1, [2, 7])
    await settle()
    assert [task.done() for task in tasks] == [True, False, True, False, False, False]
    store.lands[1](2, [3, 7, 4, 7, 5, 7])  # a joined call, of three permits
    (again,) = start(coalescer, [a_call(9, b"k3")])
    await settle()
    assert [task.done() for task in tasks] == [True, False, True, True, True, True]
    assert store.sent[2] == [a_call(9, b"k3")], "its key is free again"
    await store.land(StoreUnavailable("gone"))
    with pytest.raises(StoreUnavailable, match="gone"):
        await tasks[1]
    await store.land()
    assert await again == [9, 7]


@pytest.mark.parametrize("kind", [Airport, OneByOne])
async def test_of_a_crowd_that_landed_the_first_are_on_their_way_before_the_last_is_woken(kind: type[Airport]) -> None:
    """And none leaves alone: or server and client would wait for each other in turns."""
    store, crowd = kind(), 5 * WOKEN
    coalescer, woken = coalescing(store), list[int]()
    woken_at: list[int] = []
    """For each write, how many had been woken by then."""
    fly = store._fly

    async def noted(calls: Sequence[Call], land: Land = lambda *_: None) -> None:
        woken_at.append(len(woken))
        await fly(calls, land)

    store._fly = noted  # type: ignore[method-assign]  # takes notes

    async def twice(n: int) -> None:
        await coalescer.run(a_call(n))
        woken.append(n)
        await coalescer.run(a_call(n, b"other"))

    tasks = [*start(coalescer, [a_call(0)]), *(asyncio.create_task(twice(n)) for n in range(1, crowd + 1))]
    await settle()
    await store.land()  # the first, who had flown alone
    await store.land()  # the crowd
    assert woken_at == [0, 0, WOKEN]
    assert woken == list(range(1, crowd + 1))
    await store.land()
    assert [[len(call.permits) for call in calls] for calls in store.sent] == [[1], [crowd], [WOKEN], [crowd - WOKEN]]
    await store.land()
    await asyncio.gather(*tasks)


async def test_where_others_keep_the_loop_a_crowd_is_woken_at_once() -> None:
    """Each turn is long there: the last would wait for many, while the server's leases run."""
    store, crowd = Airport(), 5 * WOKEN
    coalescer, woken = coalescing(store), list[int]()
    seen: list[int] = []
    """How many had been woken, turn by turn."""

    async def ask_once(n: int) -> None:
        await coalescer.run(a_call(n))
        woken.append(n)

    async def others() -> None:
        while len(woken) < crowd:
            time.sleep(2 * TURN)  # noqa: ASYNC251  # what such others do
            seen.append(len(woken))
            await asyncio.sleep(0)

    for turns in [[0, WOKEN, crowd]] * LONG + [[0, crowd]] * 2:
        lone = start(coalescer, [a_call(0)])
        await settle()
        tasks = [asyncio.create_task(ask_once(n)) for n in range(crowd)]
        await settle()
        await store.land()
        busy = asyncio.create_task(others())
        await asyncio.sleep(0)
        await store.land()
        await asyncio.gather(busy, *tasks, *lone)
        assert sorted(set(seen)) in (turns, turns[:-1])  # whether the last look came before or after the last wake
        seen.clear()
        woken.clear()


async def test_closing_waits_until_a_crowd_has_its_answers() -> None:
    store, crowd = Airport(), 5 * WOKEN
    coalescer = coalescing(store)
    tasks = start(coalescer, [a_call(n) for n in range(crowd)])
    await settle()
    await store.land()
    store.gates[-1].set_result(None)
    await asyncio.wait(tasks[1:], return_when=asyncio.FIRST_COMPLETED)
    assert not tasks[-1].done()
    await coalescer.aclose()
    await asyncio.sleep(0)
    assert all(task.done() for task in tasks)


async def test_a_cluster_gets_joined_calls_one_by_one() -> None:
    """A busy key keeps no other key waiting."""
    store = OneByOne()
    tasks = start(coalescing(store), [a_call(n, b"k%d" % (n % 3)) for n in range(12)])
    await settle()
    assert [len(call.permits) for (call,) in store.sent] == [1, 1, 1]
    for _ in range(3):
        await store.land()
    assert [len(call.permits) for (call,) in store.sent] == [1, 1, 1, 3, 3, 3]
    while store.in_flight:
        await store.land()
    assert [await task for task in tasks] == [[n, 7] for n in range(12)]


@pytest.mark.parametrize(("keys", "most"), [(1, PERMITS), (16, KEYED // 16)])
async def test_batches_are_bounded(keys: int, most: int) -> None:
    """By permits, and by permits times keys."""
    store = Airport()
    rules = (b"s", b"5", b"60000") * keys
    call = Call(SCRIPTS["admit"], tuple(b"k%d" % n for n in range(keys)), (b"", b"", *rules))
    tasks = start(coalescing(store), [call._replace(permits=(b"%d" % n,)) for n in range(2 * most + 2)])
    await settle()
    while store.in_flight:
        await store.land()
    assert [len(call.permits) for (call,) in store.sent] == [1, most, most, 1]
    assert [await task for task in tasks] == [[n, 7] for n in range(2 * most + 2)]


async def test_who_left_before_the_call_did_is_not_sent() -> None:
    """Nor does the reply move up in place of the missing."""
    store = Airport()
    tasks = start(coalescing(store), [a_call(n) for n in range(5)])
    await settle()
    tasks[2].cancel()
    await settle()
    await store.land()
    assert store.sent[1][0].permits == (b"1", b"3", b"4")
    await store.land()
    assert await asyncio.gather(*tasks[:2], *tasks[3:]) == [[0, 7], [1, 7], [3, 7], [4, 7]]
    assert tasks[2].cancelled()


async def test_leaving_a_call_in_flight_harms_nobody() -> None:
    """Not even when all of them leave: the call lands, and the next one leaves."""
    store = Airport()
    coalescer = coalescing(store)
    tasks = start(coalescer, [a_call(n) for n in range(4)])
    await settle()
    await store.land()
    for task in tasks[1:3]:
        task.cancel()
    await settle()
    await store.land()
    assert await tasks[3] == [3, 7]
    (last,) = start(coalescer, [a_call(9)])
    await settle()
    await store.land()
    assert await last == [9, 7]


async def test_the_first_may_leave() -> None:
    """The call that went out alone is its caller's own; those who waited for it go on without."""
    store = Airport()
    tasks = start(coalescing(store), [a_call(n) for n in range(3)])
    await settle()
    tasks[0].cancel()
    await settle()
    assert store.sent[1][0].permits == (b"1", b"2")
    store.gates[1].set_result(None)
    assert await asyncio.gather(*tasks[1:]) == [[1, 7], [2, 7]]


async def test_an_error_reaches_everybody_as_his_own() -> None:
    """Whoever adds to an error, or to its traceback, adds to his own."""
    store = Airport()
    tasks = start(coalescing(store), [a_call(n) for n in range(4)])
    await settle()
    await store.land()
    await store.land(StoreUnavailable("gone"))
    errors = await asyncio.gather(*tasks[1:], return_exceptions=True)
    assert [str(error) for error in errors] == ["gone"] * 3
    assert all(type(error) is StoreUnavailable for error in errors)
    assert len(set(map(id, errors))) == 3


async def test_one_calls_error_is_not_its_neighbours() -> None:
    """In one pipeline, each call fails or answers by itself."""
    store = Airport()
    tasks = start(coalescing(store), [a_call(0), a_call(1, b"good"), a_call(2, b"bad"), a_call(3, b"fine")])
    await settle()
    await store.land()
    await store.land()
    replies = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(replies.pop(2), StoreError)
    assert replies == [[0, 7], [1, 7], [3, 7]]


async def test_the_deadline_is_each_callers_own() -> None:
    """It begins with the caller's call, not with the flight he waits for, nor with the one he takes."""
    store = Airport()
    coalescer = coalescing(store, 0.3)
    took: dict[int, float] = {}

    async def wait(n: int, later: float) -> None:
        await asyncio.sleep(later)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"no answer within 0\.3 s"):
            await coalescer.run(a_call(n))
        took[n] = time.monotonic() - began

    first = asyncio.create_task(ask(coalescer, a_call(0)))
    await asyncio.gather(*(wait(n, 0.05 * n) for n in range(1, 4)))
    assert all(0.3 <= seconds < 0.55 for seconds in took.values()), took
    await store.land()
    assert await first == [0, 7]
    assert len(store.sent) == 1, "nobody was left to send for"


async def test_closing_waits_for_what_is_in_flight() -> None:
    """So that no task outlives its limiter."""
    store = Airport()
    coalescer = coalescing(store)
    tasks = start(coalescer, [a_call(n) for n in range(3)])
    await settle()
    await store.land()
    closing = asyncio.create_task(coalescer.aclose())
    await settle()
    assert not closing.done()
    await store.land()
    await closing
    assert [await task for task in tasks] == [[0, 7], [1, 7], [2, 7]]


def test_a_loop_that_died_in_flight_leaves_nothing_behind() -> None:
    store = Airport()

    async def die() -> None:
        start(coalescing(store), [a_call(n) for n in range(5)])
        await settle()
        await store.land()

    async def live() -> Sequence[int]:
        (task,) = start(coalescing(store), [a_call(8)])
        await settle()
        store.gates[-1].set_result(None)
        return await task

    asyncio.run(die())
    for _ in range(2):
        assert asyncio.run(live()) == [8, 7]
    gc.collect()  # a task that was forgotten would complain here


# On real servers, counted by them


def scripts_run(server: Server) -> int:
    """How many script calls clients have sent since `CONFIG RESETSTAT`."""
    found = re.findall(r"cmdstat_eval(?:sha)?:calls=(\d+)", str(server.command("INFO", "commandstats")))
    return sum(map(int, found))


async def counted(servers: Iterable[Server], step: Callable[[], Awaitable[object]]) -> int:
    for server in servers:
        server.command("CONFIG", "RESETSTAT")
    await step()
    return sum(map(scripts_run, servers))


@asynccontextmanager
async def warm(url: str, *, coalesce: bool = True, deadline: float = 10) -> AsyncIterator[AsyncLimiter]:
    """A limiter whose server has the scripts."""
    async with AsyncLimiter(url, coalesce=coalesce, deadline=deadline) as limiter:
        for n in range(30):  # of a cluster, every node
            async with limiter.acquire(Slots(f"warm{n}", 1)):
                pass
        yield limiter


async def test_a_hundred_permits_are_two_calls(server: Server) -> None:
    """The first goes alone, the rest in one; the same at the end. Those who came first get in."""
    slots = Slots("hot", 60)
    async with warm(server.url) as limiter:
        permits: list[AsyncPermit] = []

        async def take() -> None:
            decisions = await asyncio.gather(*(limiter.try_acquire(slots) for _ in range(100)))
            assert [bool(decision) for decision in decisions] == [True] * 60 + [False] * 40
            permits.extend(decision.require() for decision in decisions[:60])

        assert await counted([server], take) == 2
        assert await limiter.count(slots) == 60
        assert await counted([server], lambda: asyncio.gather(*(permit.finish() for permit in permits))) == 2
        assert await limiter.count(slots) == 0


async def test_on_clusters_too(cluster: Cluster) -> None:
    """Where pipelines refuse scripts, calls over the same keys are joined all the same."""
    slots = [Slots(f"hot{n}", 60) for n in range(3)]
    async with warm(cluster.url) as limiter:

        async def take() -> None:
            wanted = [limiter.try_acquire(each) for _ in range(50) for each in slots]
            assert all(await asyncio.gather(*wanted))

        assert await counted(cluster.masters, take) == 2 * len(slots)
        assert [await limiter.count(each) for each in slots] == [50] * 3


async def test_the_off_switch(get_server: GetServer) -> None:
    """Each call by itself."""
    server = get_server(NEWEST)
    async with warm(server.url, coalesce=False) as limiter:
        wanted = [limiter.try_acquire(Slots("hot", 100)) for _ in range(50)]
        assert await counted([server], lambda: asyncio.gather(*wanted)) == 50


async def test_windows_join_with_their_costs(get_server: GetServer) -> None:
    """A refused permit lets a later, smaller one pass; what it was told counts what went before it."""
    tokens = Window("team", "tokens", 100)
    async with warm(get_server(NEWEST).url) as limiter:
        first, *rest = await asyncio.gather(*(limiter.try_acquire(tokens.cost(cost)) for cost in (10, 50, 60, 40, 1)))
        assert first
        assert [bool(decision) for decision in rest] == [True, False, True, False]
        assert rest[1].statuses[0].used == 60
        await first.require().finish()


async def test_a_pipeline_survives_forgotten_scripts(server: Server) -> None:
    """After SCRIPT FLUSH each call of a pipeline is sent as text, in a joined call all its permits."""
    async with warm(server.url) as limiter:
        server.command("SCRIPT", "FLUSH")
        wanted = [limiter.try_acquire(Slots(f"g{n % 10}", 5)) for n in range(50)]
        assert all(await asyncio.gather(*wanted))
        assert [await limiter.count(Slots(f"g{n}", 5)) for n in range(10)] == [5] * 10


async def test_a_pipeline_survives_lost_connections(get_server: GetServer) -> None:
    """Each call is sent once more; by their ids permits hold once."""
    server = get_server(NEWEST)
    async with warm(server.url) as limiter:
        server.command("CLIENT", "KILL", "TYPE", "normal")
        wanted = [limiter.try_acquire(Slots(f"g{n % 10}", 5)) for n in range(50)]
        assert all(await asyncio.gather(*wanted))
        assert [await limiter.count(Slots(f"g{n}", 5)) for n in range(10)] == [5] * 10


async def test_a_key_of_another_type_is_its_own_trouble(get_server: GetServer) -> None:
    """Whoever asks for it is told which; the others in the pipeline get what they came for."""
    server = get_server(NEWEST)
    server.command("SET", "pyslot:v1:{bad}:s", "x")
    async with warm(server.url) as limiter:
        names = ["first", "good", "bad", "fine", "bad"]
        wanted = (limiter.try_acquire(Slots(name, 5)) for name in names)
        found = await asyncio.gather(*wanted, return_exceptions=True)
        for name, answer in zip(names, found, strict=True):
            if name == "bad":
                assert isinstance(answer, StoreError)
                assert "{bad}:s" in str(answer)
            else:
                assert answer


async def test_a_cancelled_permit_is_undone_and_its_neighbours_stay(get_server: GetServer) -> None:
    """The joined call goes on; the permit of who left is taken back by its id."""
    server = get_server(NEWEST)
    slots = Slots("hot", 100)
    async with warm(server.url) as limiter:
        server.pause()
        tasks = [asyncio.create_task(limiter.try_acquire(slots)) for _ in range(40)]
        await settle()
        first = tasks[0]
        server.resume()
        await first
        server.pause()
        await settle()  # the other 39 are in flight now
        for task in tasks[10:20]:
            task.cancel()
        await settle()
        server.resume()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        granted = [answer for answer in done if not isinstance(answer, BaseException)]
        assert len(granted) == 30
        assert all(granted)
        await reaches(limiter, slots, 30)


async def reaches(limiter: AsyncLimiter, slots: Slots, wanted: int) -> None:
    """Clean-up goes on in the background; what overtook the call it undoes is repeated a deadline and 5 s later."""
    async with asyncio.timeout(15):
        while await limiter.count(slots) != wanted:  # noqa: ASYNC110  # the server has no event to wait for
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("seed", range(5))
async def test_a_storm_of_cancellations(get_server: GetServer, seed: int) -> None:
    """Whoever was granted a slot holds it, and nobody else does; at the end nothing is held."""
    dice = random.Random(seed)
    slots = [Slots(f"hot{n}", 30) for n in range(3)]
    async with warm(get_server(NEWEST).url, deadline=3) as limiter:
        for _ in range(4):
            tasks = []
            for _ in range(120):
                tasks.append(asyncio.create_task(limiter.try_acquire(dice.choice(slots))))
                if dice.random() < 0.2:
                    await asyncio.sleep(dice.choice((0, 0.0005, 0.002)))
                if dice.random() < 0.5:
                    dice.choice(tasks).cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            decisions = [answer for answer in answers if not isinstance(answer, BaseException)]
            assert all(isinstance(answer, asyncio.CancelledError) for answer in answers if answer not in decisions)
            permits = [decision.require() for decision in decisions if decision]
            for each in slots:
                await reaches(limiter, each, sum(permit.parts[0].limit == each for permit in permits))
            await asyncio.gather(*(permit.finish() for permit in permits))
            for each in slots:
                await reaches(limiter, each, 0)


def test_one_event_loop_after_another(get_server: GetServer) -> None:
    """A limiter made anew in each finds nothing of the last."""
    url = get_server(NEWEST).url
    slots = Slots("hot", 200)

    async def once() -> int:
        async with AsyncLimiter(url) as limiter:
            decisions = await asyncio.gather(*(limiter.try_acquire(slots) for _ in range(20)))
            held = await limiter.count(slots)
            await asyncio.gather(*(decision.require().finish() for decision in decisions))
            return held

    assert [asyncio.run(once()) for _ in range(3)] == [20, 20, 20]


async def test_many_tasks_on_a_cluster_of_each_family(get_cluster: GetCluster, cluster_name: str) -> None:
    """Over several hash slots, with refusals undone: never above a limit, and nothing is left at the end."""
    one, two = Slots("one", 7), Slots("two", 11)
    most = 0
    async with warm(get_cluster(cluster_name).url) as limiter:
        inside = 0

        async def work() -> None:
            nonlocal inside, most
            async with limiter.acquire(one, two, wait=30):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0.001)
                inside -= 1

        await asyncio.gather(*(work() for _ in range(60)))
        assert 0 < most <= 7
        await reaches(limiter, one, 0)
        await reaches(limiter, two, 0)
