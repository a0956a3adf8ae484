"""The straight line that most requests take does what the flow does: both run here, side by side, over equal stores."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest

from pyslot import AsyncLimiter, Decision, Limiter, LimitExceeded, Local, Slots, StoreError, StoreUnavailable, Window
from pyslot.decision import Outcome
from pyslot.hooks import Hooks
from pyslot.loader import Call
from pyslot.model import Model
from pyslot.permit import BasePermit
from tests.life.helpers import AsyncTapped, Tapped

LIMITS = [
    Slots("key:a", 2, lease=5),
    Slots("team:b", 1, lease=1),
    Slots("key:a", 3, tag="t", enforce=False),
    Window("key:a", "requests", 3, per=2),
    Window("key:a", "tokens", 10, per=3).cost(4),
    Window("team:b", "tokens", 10, per=3).cost(11),
    Window("team:b", "requests", None),
]
TROUBLE: list[BaseException | None] = [
    *[None] * 12,
    StoreUnavailable("away, says the test"),
    StoreError("declined, says the test"),
    KeyboardInterrupt(),
]


class Heard(Hooks):
    """Keeps what it is told, as far as it can be compared."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def decision(self, decision: Decision[Any], seconds: float) -> None:
        self.told.append((bool(decision), decision.degraded, decision.statuses, decision.permit is None, seconds))

    def settle(self, permit: BasePermit, outcome: Outcome, held: float) -> None:
        self.told.append((len(permit.parts), outcome, held))


class Side:
    """One limiter over a store of its own, in driven time; what it said and did is kept."""

    def __init__(self, *, straight: bool, on_outage: Any, hooks: list[Hooks]) -> None:  # noqa: ANN401  # a policy
        self.now = 100.0
        self.trouble: BaseException | None = None
        store = Tapped()
        store.model = Model(lambda: int(self.now * 1000))
        store.after = self._after
        self.said: list[Any] = []
        self.store = store
        driven = type("Driven", (Limiter,), {"_monotonic": staticmethod(lambda: self.now)})
        self.limiter = driven(store, hooks=hooks, on_outage=on_outage, breaker=False)
        if not straight:
            self.limiter._flows.straight = self.limiter._flows.ending = lambda *_: None
        self.limiter._worker.close()  # nothing in the background: what is left to it is compared
        self.permits: list[Any] = []
        self.drives = 0
        run = self.limiter._run

        def counted(flow: Any) -> Any:  # noqa: ANN401  # a flow's result
            self.drives += 1
            return run(flow)

        self.limiter._run = counted

    def _after(self, _: Call) -> None:
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble

    def tell(self, act: Callable[[], Any]) -> None:
        try:
            found = act()
        except (StoreUnavailable, StoreError, KeyboardInterrupt, LimitExceeded) as error:
            self.said.append((type(error), str(error)))
        else:
            self.said.append(found)

    def ask(self, asked: list[Any]) -> Any:  # noqa: ANN401  # what can be compared
        decision: Decision[Any] = self.limiter.try_acquire(*asked)
        if decision.permit is not None:
            self.permits.append(decision.permit)
        return bool(decision), decision.degraded, decision.repeated, decision.refused_by, decision.statuses

    def enter(self, asked: list[Any]) -> None:
        self.permits.append(self.limiter.acquire(*asked).__enter__())

    def held(self) -> Any:  # noqa: ANN401  # what can be compared
        return {key: sorted(_plain(value)) for key, value in self.store.model.data.items()}


def _plain(value: Any) -> list[Any]:  # noqa: ANN401  # a gauge or a window
    return sorted(value.held.values()) if hasattr(value, "held") else [value.used, *sorted(value.charges.values())]


@pytest.mark.parametrize("listening", [False, True])
@pytest.mark.parametrize("on_outage", ["raise", "closed", "open", Local(0.5)], ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_the_straight_line_and_the_flow_say_and_do_the_same(seed: int, on_outage: Any, listening: bool) -> None:  # noqa: ANN401
    heard = [Heard(), Heard()]
    sides = [
        Side(straight=straight, on_outage=on_outage, hooks=[hook] if listening else [])
        for straight, hook in zip((True, False), heard, strict=True)
    ]
    rng = random.Random(seed)
    for _ in range(150):
        asked = rng.sample(LIMITS, rng.choice([1, 1, 2, 3, 5]))
        trouble, step = rng.choice(TROUBLE), rng.choice([0.0, 0.1, 0.7, 2.0])
        what, which, figure = rng.choice(["try", "try", "block", "finish", "finish"]), rng.random(), rng.randrange(9)
        for side in sides:
            side.now += step
            side.trouble = trouble
            if what == "try":
                side.tell(partial(side.ask, asked))
            elif what == "block":
                side.tell(partial(side.enter, asked))
            elif side.permits:
                permit = side.permits.pop(int(which * len(side.permits)))
                for part in permit.parts:
                    if isinstance(part.limit, Window):
                        permit.settle(part.limit.cost(figure))
                side.tell(permit.finish)
            side.trouble = None
        straight, flow = sides
        assert straight.said == flow.said
        assert heard[0].told == heard[1].told
        assert straight.held() == flow.held()
        assert straight.store.names() == flow.store.names()
        backlogs = [side.limiter._flows.upkeep.backlog for side in sides]
        assert len(backlogs[0]) == len(backlogs[1])
        assert straight.limiter.incidents == flow.limiter.incidents
    assert straight.drives < flow.drives / 5
    assert bool(heard[0].told) == listening


async def test_a_cancelled_straight_line_leaves_an_undo_and_ends_what_it_held() -> None:
    store, slots = AsyncTapped(), Slots("key:a", 2)
    async with AsyncLimiter(store) as limiter:
        assert await limiter.count(slots) == 0  # from now on the limiter is at home on this loop
        for start in (limiter.try_acquire(slots), limiter.acquire(slots).__aenter__()):
            await _cancelled(start, store)
        while await limiter.count(slots):  # noqa: ASYNC110  # what happens behind it has no event
            await asyncio.sleep(0.001)
        permit = (await limiter.try_acquire(slots)).require()
        await _cancelled(permit.finish(), store)
        assert not permit.is_open
        names = store.store.names
        # Two undos, an end of unknown outcome, and the same again.
        while names().count("finish") < 4:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.001)
        assert await limiter.count(slots) == 0


class Mark:
    """Something of a caller's."""


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_an_error_leaves_no_circle_behind() -> None:
    """What a caller had in hand goes with the caller, not when the collector next comes by."""
    store, slots = Tapped(), Slots("key:a", 2)
    kept: list[weakref.ref[Mark]] = []
    with Limiter(store, breaker=False) as limiter:

        def caller(act: Callable[[], object]) -> None:
            mine = Mark()
            kept.append(weakref.ref(mine))
            try:
                act()
            except BaseException:  # noqa: BLE001  # a caller who does not mind
                store.after = lambda _: None
            else:
                pytest.fail("it should have raised")

        for make in (lambda: StoreUnavailable("away"), lambda: StoreError("declined"), KeyboardInterrupt):
            permit = limiter.try_acquire(Slots("key:b", 9)).require()
            for act in (lambda: limiter.try_acquire(slots), lambda: limiter.acquire(slots).__enter__(), permit.finish):
                store.after = _raising(make())
                caller(act)
        assert [n for n, mark in enumerate(kept) if mark()] == []


def _raising(error: BaseException) -> Callable[[Call], object]:
    left = [error]

    def after(_: Call) -> None:
        if left:
            raise left.pop()

    return after


@pytest.mark.usefixtures("uncollected")
async def test_a_cancelled_caller_leaves_no_circle_behind() -> None:
    store, slots = AsyncTapped(), Slots("key:a", 9)
    kept: list[weakref.ref[Mark]] = []
    async with AsyncLimiter(store) as limiter:
        permit = (await limiter.try_acquire(slots)).require()

        async def caller(work: Callable[[], Awaitable[object]]) -> None:
            mine = Mark()
            kept.append(weakref.ref(mine))
            await work()

        for work in (lambda: limiter.try_acquire(slots), lambda: limiter.acquire(slots).__aenter__(), permit.finish):
            await _cancelled(caller(work), store)
        await asyncio.sleep(0)
        assert [mark() for mark in kept] == [None] * 3


def test_a_refusal_by_an_outage_policy_tells_of_itself_alone() -> None:
    """As it does where the server is known to be away, and nobody asked it."""
    store, slots = Tapped(), Slots("key:a", 2, on_outage="closed")
    store.after = _raising(StoreUnavailable("away"))
    with Limiter(store) as limiter:
        for _ in range(2):
            with pytest.raises(LimitExceeded) as caught, limiter.acquire(slots):
                pytest.fail("nobody gets in here")
            assert caught.value.__context__ is None


async def _cancelled(work: Coroutine[Any, Any, object], store: AsyncTapped) -> None:
    """Cancel it while its first call has had its effect and its answer is on the way."""

    def wait(_: Call) -> Any:  # noqa: ANN401  # an awaitable
        store.wait = None
        return asyncio.sleep(60)

    store.wait = wait
    task = asyncio.ensure_future(work)
    while store.wait is not None:  # noqa: ASYNC110  # as above
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
