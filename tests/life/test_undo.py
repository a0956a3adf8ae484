"""Invariant 17: whatever becomes of a call or of its caller, nothing stays behind and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from pyslot import AsyncLimiter, Limiter, Slots, StoreError, StoreUnavailable, Window, calls
from pyslot import cleanup as cleanup_module
from pyslot.adapters.memory import MemoryStore
from pyslot.cleanup import Backlog, Errand, Why
from pyslot.keys import Naming
from pyslot.loader import Call
from tests.conftest import GetServer, PrivateServer
from tests.contract.wire import step
from tests.life.helpers import AsyncTapped, Tapped, until
from tests.servers.proxy import Do, Proxy

SLOTS = Slots("key:a", 1)
TOKENS = Window("key:a", "tokens", 100)


class Lossy(Tapped):
    """Loses the answers of the next so many calls of a step."""

    def __init__(self) -> None:
        super().__init__()
        self.loses: dict[str, int] = {}

    def run(self, call: Call) -> list[int]:
        reply = super().run(call)
        if self.loses.get(step(call)):
            self.loses[step(call)] -= 1
            raise StoreUnavailable("lost by the test")
        return reply


def open_limiter(store: MemoryStore, **options: Any) -> Limiter:  # noqa: ANN401 - those of a limiter
    return Limiter(store, breaker=False, **options)


def test_a_lost_reply_is_undone_and_the_undo_repeated_once() -> None:
    store = Lossy()
    with open_limiter(store, deadline=0.01) as limiter:
        limiter._flows.upkeep.backlog._again_after = 0.2
        store.loses["admit"] = 1
        with pytest.raises(StoreUnavailable):
            limiter.try_acquire(SLOTS, TOKENS.cost(60))
        until(lambda: store.names().count("finish") == 2)
        time.sleep(0.3)
        assert store.names().count("finish") == 2
        assert limiter.try_acquire(SLOTS, TOKENS.cost(100))


def test_an_undo_that_overtook_its_call_is_made_good_by_the_repetition() -> None:
    """A packet that lay about somewhere arrives after the undo."""
    store = Lossy()
    with open_limiter(store) as limiter:
        limiter._flows.upkeep.backlog._again_after = 0.2
        held: list[Call] = []
        store.before = lambda call: held.append(call) if step(call) == "admit" else None
        store.loses["admit"] = 1
        with pytest.raises(StoreUnavailable):
            limiter.try_acquire(SLOTS)
        until(lambda: store.names().count("finish") == 1)
        MemoryStore.run(store, held[0])
        assert limiter.count(SLOTS) == 1
        until(lambda: limiter.count(SLOTS) == 0)


def test_an_undo_does_not_take_away_what_was_granted_since() -> None:
    """The caller asks again under its own id, and holds; the undo of the first try is not due any more."""
    store = Lossy()
    with open_limiter(store) as limiter:
        limiter._flows.upkeep.backlog._again_after = 0.1
        store.loses["admit"] = 1
        with pytest.raises(StoreUnavailable):
            limiter.try_acquire(SLOTS, TOKENS.cost(60), id="job-1")
        decision = limiter.try_acquire(SLOTS, TOKENS.cost(60), id="job-1")
        assert decision
        time.sleep(0.5)
        assert limiter.count(SLOTS) == 1
        assert limiter.peek(TOKENS)[0].used == 60
        assert decision.require().finish().released


def test_asking_again_under_an_id_that_is_held_gives_the_same_permit() -> None:
    store = Lossy()
    with open_limiter(store) as limiter:
        first = limiter.try_acquire(SLOTS, id="job-1").require()
        again = limiter.try_acquire(SLOTS, id="job-1")
        assert again.repeated
        assert again.permit is first
        store.loses["admit"] = 1
        with pytest.raises(StoreUnavailable):
            limiter.try_acquire(SLOTS, id="job-1")
        time.sleep(0.2)
        assert limiter.count(SLOTS) == 1, "a lost re-send does not end what is held"


def test_the_end_of_an_ids_earlier_life_goes_before_its_next_one() -> None:
    store = Lossy()
    with open_limiter(store) as limiter:
        permit = limiter.try_acquire(SLOTS, TOKENS.cost(60), id="job-1").require()
        permit.settle(TOKENS.cost(10))
        store.before = _unreachable(True)
        with pytest.raises(StoreUnavailable):
            permit.finish()
        store.before = _unreachable(False)
        again = limiter.try_acquire(SLOTS, TOKENS.cost(50), id="job-1")
        assert again
        assert not again.repeated, "the first has ended"
        time.sleep(0.4)
        assert limiter.count(SLOTS) == 1
        assert limiter.peek(TOKENS)[0].used == 10 + 50


def _unreachable(away: bool) -> Any:  # noqa: ANN401 - a hook of `Tapped`
    def before(_: Call) -> None:
        if away:
            raise StoreUnavailable("away, says the test")

    return before


def test_a_finish_without_an_answer_is_sent_until_there_is_one_and_counts_once() -> None:
    store = Lossy()
    with open_limiter(store) as limiter:
        permit = limiter.try_acquire(SLOTS, TOKENS.cost(60)).require()
        permit.settle(TOKENS.cost(30))
        store.loses["finish"] = 3
        with pytest.raises(StoreUnavailable):
            permit.finish()
        until(lambda: store.loses["finish"] == 0 and not limiter._flows.upkeep.backlog.queues)
        assert limiter.peek(SLOTS, TOKENS)[0].used == 0
        assert limiter.peek(TOKENS)[0].used == 30


def test_what_the_server_declines_is_not_sent_again() -> None:
    store = Lossy()
    with open_limiter(store) as limiter:
        permit = limiter.try_acquire(SLOTS).require()

        def decline(call: Call) -> None:
            if step(call) == "finish":
                raise StoreError("NOPERM, says the test")

        store.before = decline
        with pytest.raises(StoreError):
            permit.finish()
        time.sleep(0.2)
        assert store.names().count("finish") == 1


def test_many_ends_travel_together_and_the_backlog_is_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cleanup_module, "BACKLOG", 300)
    store, many = Lossy(), Slots("key:a", None)
    with Limiter(store) as limiter:
        permits = [limiter.try_acquire(many).require() for _ in range(350)]
        store.before = _unreachable(True)
        for permit in permits:
            with pytest.raises(StoreUnavailable):
                permit.finish()
        assert len(limiter._flows.upkeep.backlog) == 300
        assert limiter.incidents["dropped"] == 50
        seen = len(store.calls)
        store.before = _unreachable(False)
        until(lambda: not limiter._flows.upkeep.backlog.queues)
        assert len(store.calls) - seen < 60
        assert limiter.count(many) == 50, "those end with their leases"
    assert caplog.text.count("were given up") == 1


def test_closing_sends_what_is_waiting() -> None:
    store = Lossy()
    limiter = open_limiter(store)
    permit = limiter.try_acquire(SLOTS).require()
    store.before = _unreachable(True)
    with pytest.raises(StoreUnavailable):
        permit.finish()
    store.before = lambda _: time.sleep(0.2)
    limiter.close()
    assert MemoryStore.run(store, store.calls[0])[0] == 1, "there is room"


def test_closing_takes_little_more_than_the_deadline_when_nobody_answers(private_server: PrivateServer) -> None:
    server = private_server("valkey-9.1")
    limiter = Limiter(server.url, deadline=0.4)
    permits = [limiter.try_acquire(Slots("key:a", None)).require() for _ in range(20)]
    server.pause()
    for permit in permits:
        with pytest.raises(StoreUnavailable):
            permit.finish()
    began = time.monotonic()
    limiter.close()
    assert time.monotonic() - began < 2.0
    server.resume()


# Exceptions and cancellation


@pytest.mark.parametrize("trouble", [StoreUnavailable("away"), StoreError("declined"), TypeError("a bug")])
def test_trouble_at_the_end_masks_neither_an_exception_nor_a_result(trouble: Exception) -> None:
    store = Lossy()

    def fail(call: Call) -> None:
        if step(call) == "finish":
            raise trouble

    with open_limiter(store) as limiter:
        store.before = fail

        def work() -> int:
            with limiter.acquire(Slots("key:a", None)):
                return 42

        assert work() == 42
        with pytest.raises(ZeroDivisionError), limiter.acquire(Slots("key:a", None)):
            1 / 0  # noqa: B018 - raises
        store.before = _unreachable(False)


async def test_trouble_at_the_end_of_an_asynchronous_block_masks_nothing() -> None:
    tapped = AsyncTapped()

    def fail(call: Call) -> None:
        if step(call) == "finish":
            raise TypeError("a bug")

    tapped.store.before = fail
    async with AsyncLimiter(tapped, breaker=False) as limiter:
        with pytest.raises(ZeroDivisionError):
            async with limiter.acquire(SLOTS):
                1 / 0  # noqa: B018 - raises
        tapped.store.before = lambda _: None


def test_a_bug_surfaces_and_is_no_outage() -> None:
    """BerriAI/litellm#35528, edictum-console#7: any unexpected error let requests through."""
    store = Lossy()

    def bug(_: Call) -> None:
        raise TypeError("a bug in the adapter")

    with Limiter(store, on_outage="open") as limiter:
        store.before = bug
        with pytest.raises(TypeError, match="a bug in the adapter"):
            limiter.try_acquire(SLOTS)
        store.before = lambda _: None
        assert limiter.incidents["outages"] == 0


@pytest.mark.parametrize("steps", range(12))
async def test_a_task_that_is_cancelled_at_any_step_leaves_nothing(get_server: GetServer, steps: int) -> None:
    url = get_server("valkey-9.1").url
    async with AsyncLimiter(url, deadline=10) as limiter:
        await limiter.peek(SLOTS)

        async def work() -> None:
            async with limiter.acquire(SLOTS, TOKENS.cost(60), on_error="refund"):
                await asyncio.sleep(0.005)

        task = asyncio.ensure_future(work())
        for _ in range(steps):
            await asyncio.sleep(0.001 if steps > 8 else 0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(10):
            while (await limiter.peek(SLOTS))[0].used:  # noqa: ASYNC110 - there is nothing to be told by
                await asyncio.sleep(0.01)
        if task.cancelled():
            assert (await limiter.peek(TOKENS))[0].used == 0


async def test_a_grant_that_a_time_out_lost_is_undone() -> None:
    """wait_for: the server has said yes, and nobody is there any more to hear it."""
    tapped = AsyncTapped()
    async with AsyncLimiter(tapped) as limiter:
        for moment in (0.0, 0.001, 0.002, 0.005):
            tapped.wait = lambda call, m=moment: asyncio.sleep(m) if step(call) == "admit" else None
            for limit in (0.0, 0.001, 0.002, 0.005):
                try:
                    decision = await asyncio.wait_for(limiter.try_acquire(SLOTS), limit)
                except TimeoutError:
                    pass
                else:
                    await decision.require().finish()
                async with asyncio.timeout(10):
                    while await limiter.count(SLOTS):  # noqa: ASYNC110 - there is nothing to be told by
                        await asyncio.sleep(0.002)


async def test_a_cancelled_block_ends_in_the_background_without_waiting() -> None:
    tapped = AsyncTapped()
    tapped.wait = lambda call: asyncio.sleep(0.3) if step(call) == "finish" else None
    async with AsyncLimiter(tapped) as limiter:

        async def work() -> None:
            async with limiter.acquire(SLOTS):
                await asyncio.sleep(60)

        task = asyncio.ensure_future(work())
        await asyncio.sleep(0.05)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 0.2
        async with asyncio.timeout(5):
            while await limiter.count(SLOTS):  # noqa: ASYNC110 - there is nothing to be told by
                await asyncio.sleep(0.01)


async def test_a_stream_that_is_cancelled_or_closed_gives_its_slot_back() -> None:
    async def numbers() -> Any:  # noqa: ANN401 - a generator
        yield 1
        await asyncio.sleep(60)

    async with AsyncLimiter(AsyncTapped()) as limiter:

        async def read() -> None:
            stream = (await limiter.try_acquire(SLOTS)).require().wrap(numbers())
            async for _ in stream:
                pass

        task = asyncio.ensure_future(read())
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with limiter.acquire(SLOTS, wait=5) as permit:
            async with permit.wrap(numbers()) as stream:
                assert await anext(stream) == 1
            assert await limiter.count(SLOTS) == 0


@pytest.mark.parametrize("do", [Do.LOSE, Do.MUTE, Do.CUT, Do.SWALLOW])
@pytest.mark.parametrize("library", ["redis", "valkey"])
def test_whatever_the_network_does_to_a_call_nothing_stays_behind(get_server: GetServer, do: Do, library: str) -> None:
    server = get_server("valkey-9.1")
    with Proxy(server.port) as proxy, Limiter(f"{library}://{proxy.address}", deadline=0.3) as limiter:
        for _ in range(3):
            proxy.plan(do)
            proxy.plan(do)
            with suppress(StoreUnavailable):
                if permit := limiter.try_acquire(SLOTS, TOKENS.cost(60)).permit:
                    permit.refund()
                    permit.finish()
        with Limiter(server.url) as fresh:
            until(lambda: fresh.count(SLOTS) == 0)
            until(lambda: limiter.incidents["dropped"] == 0 and not limiter._flows.upkeep.outage.troubled)
            until(lambda: fresh.peek(TOKENS)[0].used == 0)


def test_what_is_due_twice_at_the_same_moment_is_sent_once() -> None:
    """A clock may stand still between two steps: on some systems it ticks 64 times a second."""
    backlog = Backlog(lambda: 5.0, 6.0, lambda *_: None)
    parts = calls.parts_of((SLOTS,), Naming())
    errands = [Errand(Why.END, parts, calls.finish(parts, b"p", {}), again) for again in (False, False)]
    backlog.add(b"p", errands)
    assert backlog.claim(b"p")
    backlog.release(b"p")  # due anew, at the same moment
    trips = backlog.take()
    assert [len(trip.errands) for trip in trips] == [1]
    backlog.done(trips[0], answered=True)
    assert len(backlog.queues[b"p"].errands) == 1
