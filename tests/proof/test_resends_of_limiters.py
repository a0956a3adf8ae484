"""A limiter's requests through a network that loses and delays: one effect, and none where the caller was told none."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from pyslot import Slots, StoreUnavailable, Window
from pyslot.keys import hash_slot
from tests.contract.backings import Served
from tests.contract.facade import Facade
from tests.proof.clients import ALL_WAYS, FEW_WAYS, Way, call, limiter
from tests.servers.process import Server
from tests.servers.proxy import Do, Proxy, is_script

SLOTS = Slots("a", 2, lease=30)
TOKENS = Window("a", "tokens", 100)
FAR_SLOTS = Slots("b", 2, lease=30)
FAR_TOKENS = Window("b", "tokens", 100)
ASKED = (SLOTS, TOKENS.cost(40), FAR_SLOTS, FAR_TOKENS.cost(30))
FIRST, SECOND = sorted((b"{a}", b"{b}"), key=hash_slot)
"""The tags in the order in which their groups are charged."""
SOON = 0.15
"""Seconds after which these tests have an undo repeated; in earnest it is `deadline` + 5."""

ONCE_MORE = {"lost reply": Do.LOSE, "cut": Do.CUT}
PATIENT = {"late reply": Do.MUTE, "never delivered": Do.SWALLOW, "delivered late": Do.HOLD}
SURVIVED = [(way, fault) for way in FEW_WAYS for fault in (ONCE_MORE | PATIENT) if way.passed or fault in ONCE_MORE]
survived = pytest.mark.parametrize(("way", "fault"), SURVIVED, ids=str)


def undo_soon(facade: Facade, seconds: float = SOON) -> None:
    facade.limiter._flows.upkeep.backlog._again_after = seconds


async def until(done: Callable[[], Awaitable[bool] | bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while True:
            found = done()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(0.01)


def held(server: Server) -> tuple[list[str], list[int]]:
    """Who holds a slot in any gauge, and the units charged in every window; entries left open count as well."""
    served = Served(server.url, [server])
    permits: list[str] = []
    units: list[int] = []
    for key in served.look():
        members = served.members(key.encode())
        if ":w:" in key:
            if members["n"] or len(members) > 2:
                units.append(members["n"])
        else:
            permits += members
    served.close()
    return sorted(permits), sorted(units)


def is_admission(words: Sequence[bytes]) -> bool:
    return is_script(words) and words[3 + int(words[2]) :][:2] == (b"", b"")


def is_end(words: Sequence[bytes]) -> bool:
    """A `finish`: where an admission has its mode it has the length of a window, or `s`."""
    keys = int(words[2])
    return not is_admission(words) and len(words) > 3 + 2 * keys and words[4 + keys] != b""


def _take(slots: Slots, id: str, it: Any) -> Any:  # noqa: ANN401 - of either limiter
    return it.try_acquire(slots, id=id)


NOTHING: tuple[list[str], list[int]] = ([], [])


@survived
async def test_a_request_that_survives_holds_once_and_ends_once(
    way: Way, proxy: Proxy, behind: Server, fault: str
) -> None:
    what = (ONCE_MORE | PATIENT)[fault]
    async with limiter(way, proxy.port, group_by_slot=True) as facade:
        proxy.plan(what, Do.PASS, what)  # in each of the two groups
        decision = await call(facade, lambda it: it.try_acquire(*ASKED, id="mine"))
        assert decision
        assert held(behind) == (["mine", "mine"], [30, 40])
        proxy.deliver()
        assert held(behind) == (["mine", "mine"], [30, 40])
        decision.permit.settle(TOKENS.cost(7))
        proxy.plan(what, Do.PASS, what)
        await call(facade, lambda _: decision.permit.finish())
        assert held(behind) == ([], [7, 30])
        proxy.deliver()
        assert held(behind) == ([], [7, 30])
        proxy.plan(what)
        assert await call(facade, lambda it: it.charge(TOKENS.cost(50)))
        assert held(behind)[1] == [30, 57]
        proxy.deliver()
        assert held(behind)[1] == [30, 57]


@survived
async def test_a_refusal_that_survives_leaves_nothing(way: Way, proxy: Proxy, behind: Server, fault: str) -> None:
    """The first group is taken and undone, either through the same trouble."""
    what = (ONCE_MORE | PATIENT)[fault]
    async with limiter(way, proxy.port, group_by_slot=True) as facade:
        full = []
        for name, limit in (("x", FAR_SLOTS), ("y", FAR_SLOTS), ("z", SLOTS)):
            full.append(await call(facade, partial(_take, limit, name)))
        before = held(behind)
        undo_soon(facade)
        for plan in ([what], [Do.PASS, what], [Do.PASS, Do.PASS, what]):
            facade.limiter._flows._refused_until.clear()  # it shall take, not look
            proxy.plan(*plan)
            assert not await call(facade, lambda it: it.try_acquire(*ASKED))
            await until(lambda: held(behind) == before)
            proxy.deliver()
            assert held(behind) == before
        assert all(full)


@pytest.mark.parametrize("at", [0, 1], ids=["first group", "second group"])
@pytest.mark.parametrize("fault", ["lost reply", "late reply", "never delivered", "delivered late"])
async def test_a_request_given_up_is_undone(few_way: Way, proxy: Proxy, behind: Server, fault: str, at: int) -> None:
    """`delivered late` comes after its first undo has run; the second one sees to it."""
    what = (ONCE_MORE | PATIENT)[fault]
    async with limiter(few_way, proxy.port, deadline=0.4, group_by_slot=True) as facade:
        undo_soon(facade)
        await call(facade, lambda it: it.peek(SLOTS))
        seen = len(proxy.seen)
        proxy.plan(matches=lambda words: is_admission(words) and (SECOND if at else FIRST) in words[3])
        proxy.always(what)
        with pytest.raises(StoreUnavailable):
            await call(facade, lambda it: it.try_acquire(*ASKED, id="mine"))
        proxy.always(Do.PASS)
        await until(lambda: len([s for s in proxy.seen[seen:] if is_end(s.words)]) >= 1 + at)
        await until(lambda: held(behind) == NOTHING)
        if proxy.deliver():
            assert held(behind)[0] == ["mine"], "it did come late"
        await until(lambda: held(behind) == NOTHING)
        await until(lambda: not len(facade.limiter._flows.upkeep.backlog))
        assert held(behind) == NOTHING


@pytest.mark.parametrize("fault", ["lost reply", "late reply", "never delivered", "delivered late"])
async def test_an_end_given_up_is_sent_again_until_it_is_answered(
    few_way: Way, proxy: Proxy, behind: Server, fault: str
) -> None:
    async with limiter(few_way, proxy.port, deadline=0.4) as facade:
        other = await call(facade, lambda it: it.try_acquire(SLOTS, TOKENS.cost(5), id="other"))
        decision = await call(facade, lambda it: it.try_acquire(SLOTS, TOKENS.cost(40), id="mine"))
        decision.permit.settle(TOKENS.cost(11))
        proxy.always((ONCE_MORE | PATIENT)[fault])
        with pytest.raises(StoreUnavailable):
            await call(facade, lambda _: decision.permit.finish())
        proxy.always(Do.PASS)
        await until(lambda: held(behind) == (["other"], [16]))
        proxy.deliver()
        assert held(behind) == (["other"], [16])
        assert other


@pytest.mark.parametrize("fault", ["lost reply", "late reply", "never delivered", "delivered late"])
async def test_a_charge_given_up_is_undone(few_way: Way, proxy: Proxy, behind: Server, fault: str) -> None:
    async with limiter(few_way, proxy.port, deadline=0.4) as facade:
        undo_soon(facade)
        await call(facade, lambda it: it.charge(TOKENS.cost(5)))
        before = held(behind)
        seen = len(proxy.seen)
        proxy.plan(matches=is_admission)
        proxy.always((ONCE_MORE | PATIENT)[fault])
        with pytest.raises(StoreUnavailable):
            await call(facade, lambda it: it.charge(TOKENS.cost(50)))
        proxy.always(Do.PASS)
        await until(lambda: any(s.words[-1] == b"0" and not is_admission(s.words) for s in proxy.seen[seen:]))
        await until(lambda: held(behind) == before)
        if proxy.deliver():
            assert held(behind)[1] == [55], "it did come late"
        await until(lambda: held(behind) == before)
        await until(lambda: not len(facade.limiter._flows.upkeep.backlog))
        assert held(behind) == before


@pytest.mark.parametrize("fault", ["lost reply", "cut", "late reply", "never delivered", "delivered late"])
async def test_renewals_through_trouble_keep_the_slot_and_add_none(
    few_way: Way, proxy: Proxy, behind: Server, fault: str
) -> None:
    async with limiter(few_way, proxy.port, deadline=0.4) as facade:
        short = Slots("a", 2, lease=2.0)
        decision = await call(facade, lambda it: it.try_acquire(short, id="mine"))
        seen = len(proxy.seen)
        proxy.plan((ONCE_MORE | PATIENT)[fault])  # of the renewal that comes after a third of the lease
        await until(lambda: len(proxy.seen) > seen + 1)
        proxy.deliver()
        served = Served(behind.url, [behind])
        end = served.members(b"pyslot:v1:{a}:s")["mine"]
        await until(lambda: served.members(b"pyslot:v1:{a}:s")["mine"] > end)
        assert held(behind)[0] == ["mine"]
        assert not decision.permit.lost
        await call(facade, lambda _: decision.permit.finish())
        assert held(behind)[0] == []
        served.close()


@pytest.mark.parametrize("fault", ["lost reply", "cut", "late reply", "never delivered", "delivered late"])
async def test_a_lost_slot_rejoins_once_through_trouble(few_way: Way, proxy: Proxy, behind: Server, fault: str) -> None:
    async with limiter(few_way, proxy.port, deadline=0.4) as facade:
        short = Slots("a", 2, lease=1.0)
        decision = await call(facade, lambda it: it.try_acquire(short, id="mine"))
        proxy.plan((ONCE_MORE | PATIENT)[fault], matches=lambda words: b"rejoin" in words)
        behind.command("DEL", "pyslot:v1:{a}:s")
        await until(lambda: decision.permit.lost and held(behind)[0] == ["mine"])
        proxy.deliver()
        assert held(behind)[0] == ["mine"]
        await call(facade, lambda _: decision.permit.finish())
        assert held(behind)[0] == []


async def test_a_call_that_comes_after_its_undo_is_undone_after_the_time_the_contract_says(behind: Server) -> None:
    """Real time, all ways at once: `deadline` + 5 s."""
    async with AsyncExitStack() as stack:
        attacks = []
        for way in ALL_WAYS:
            proxy = stack.enter_context(Proxy(behind.port))
            facade = await stack.enter_async_context(limiter(way, proxy.port, deadline=0.4, prefix=f"p:{way}"))
            attacks.append((proxy, facade))
            await call(facade, lambda it: it.peek(SLOTS))

        async def given_up(proxy: Proxy, facade: Facade) -> None:
            proxy.plan(matches=is_admission)
            proxy.always(Do.HOLD)
            seen = len(proxy.seen)
            with pytest.raises(StoreUnavailable):
                await call(facade, lambda it: it.try_acquire(SLOTS, TOKENS.cost(40)))
            proxy.always(Do.PASS)
            await until(lambda: any(is_end(s.words) for s in proxy.seen[seen:]))

        began = time.monotonic()
        await asyncio.gather(*(given_up(*attack) for attack in attacks))
        assert all(proxy.deliver() for proxy, _ in attacks)
        assert held(behind) == (sorted(held(behind)[0]), [40] * len(ALL_WAYS))
        await until(lambda: held(behind) == NOTHING, 20)
        assert time.monotonic() - began > 5.4


@pytest.mark.parametrize("late", [False, True], ids=["reply lost", "delivered late"])
@pytest.mark.parametrize("kind", [way for way in ALL_WAYS if not way.kind.blocking], ids=str)
async def test_a_task_cancelled_while_its_call_is_under_way_leaves_nothing(
    kind: Way, proxy: Proxy, behind: Server, late: bool
) -> None:
    async with limiter(kind, proxy.port) as facade:
        undo_soon(facade)
        await call(facade, lambda it: it.peek(SLOTS))
        seen = len(proxy.seen)
        proxy.plan(Do.HOLD if late else Do.MUTE)
        task = asyncio.ensure_future(facade.try_acquire(SLOTS, TOKENS.cost(40)))
        await until(lambda: len(proxy.seen) > seen)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: any(is_end(s.words) for s in proxy.seen[seen:]))
        if late:
            assert proxy.deliver() == 1
            assert len(held(behind)[0]) == 1
        await until(lambda: held(behind) == NOTHING)
