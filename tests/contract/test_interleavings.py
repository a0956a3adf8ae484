"""Racing calls over several hash slots, in every order in which their steps can meet.

Guaranteed: of calls that each fit alone, at least one is admitted; and in the end what is held is what was granted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import pytest

from pyslot import Decision, Limiter, Slots, Window
from pyslot.keys import hash_slot
from pyslot.kinds import Asked
from pyslot.loader import Call
from pyslot.testing import World

NAMES = sorted("abc", key=lambda name: hash_slot(name.encode()))
S = [Slots(name, 1) for name in NAMES]
T = [Window(name, "tokens", 10) for name in NAMES]
Request = Sequence[Asked]


class Race:
    """Callers with a limiter each, over one store; each goes one step further when it is its turn."""

    def __init__(self, requests: Sequence[Request], *, looking: bool) -> None:
        world = World()
        self.limiters = [world.limiter(group_by_slot=True) for _ in requests]
        self.decisions: list[Decision[Any] | None] = [None] * len(requests)
        if looking:
            _let_look(self.limiters, requests)
        self.flows: list[Generator[Any, Any, Decision[Any]]] = [
            limiter._flows.acquire(request, None, None)
            for limiter, request in zip(self.limiters, requests, strict=True)
        ]
        self.next: list[Any] = [None] * len(requests)
        for n in range(len(requests)):
            self._go(n, None)

    def running(self) -> list[int]:
        return [n for n, decision in enumerate(self.decisions) if decision is None]

    def step(self, n: int) -> None:
        call = self.next[n]
        assert isinstance(call, Call)
        self._go(n, self.limiters[n]._store.run(call))

    def _go(self, n: int, reply: Sequence[int] | None) -> None:
        try:
            self.next[n] = self.flows[n].send(reply)
        except StopIteration as stop:
            self.decisions[n] = stop.value

    def used(self) -> dict[object, int]:
        statuses = self.limiters[0].peek(*S, *T)
        return {status.limit: status.used for status in statuses if status.used}


def _let_look(limiters: Iterable[Limiter], requests: Sequence[Request]) -> None:
    """Make every caller one that was refused lately: then it looks before it takes."""
    for limiter, request in zip(limiters, requests, strict=True):
        for item in request:
            limit = item if isinstance(item, Slots | Window) else item.window
            limiter._flows._refused_until[limit.wire(limiter._flows.naming).key] = float("inf")


def _every(make: Callable[[], Race]) -> Iterator[Race]:
    """A race for each order of steps, from its start: flows can't be copied."""
    orders: list[list[int]] = [[]]
    while orders:
        order = orders.pop()
        race = make()
        for n in order:
            race.step(n)
        while running := race.running():
            orders.extend([*order, n] for n in running[1:])
            order.append(running[0])
            race.step(running[0])
        yield race


def _check(race: Race, requests: Sequence[Request]) -> None:
    granted = [request for request, decision in zip(requests, race.decisions, strict=True) if decision]
    assert granted, "nobody got in"
    expected: dict[object, int] = {}
    for request in granted:
        for item in request:
            limit, units = (item, 1) if isinstance(item, Slots | Window) else (item.window, item.units)
            if units:
                expected[limit] = expected.get(limit, 0) + units
    assert race.used() == expected
    assert all(not len(limiter._flows.upkeep.backlog) for limiter in race.limiters)


TWO: list[list[Request]] = [
    [(S[0], S[1]), (S[1], S[0])],
    [(S[0], S[1], S[2]), (S[2], S[0], S[1])],
    [(S[0], S[2]), (S[1], S[2])],
    [(S[0], S[1]), (S[1], S[2])],
    [(T[0].cost(6), T[1].cost(6)), (T[1].cost(6), T[0].cost(6))],
    [(T[0].cost(6), S[1], T[2].cost(10)), (S[1], T[2].cost(1), T[0].cost(5))],
    [(S[0], T[0].cost(1), T[1].cost(10)), (T[0].cost(10), S[1])],
]
MORE: list[list[Request]] = [
    [(S[0], S[1]), (S[1], S[0]), (S[0], S[1])],
    [(S[0], S[1]), (S[1], S[2]), (S[2], S[0])],
    [(T[0].cost(4), T[1].cost(6)), (T[1].cost(5), T[0].cost(7)), (T[0].cost(3), T[1].cost(10))],
    [(S[0], S[1]), (S[1], T[2].cost(10)), (T[2].cost(1), T[0].cost(10))],
    [(S[0], S[1], S[2]), (S[2], S[1]), (S[1], S[0]), (S[0], S[2])],
]


@pytest.mark.parametrize("looking", [False, True], ids=["", "after a refusal"])
@pytest.mark.parametrize("requests", TWO, ids=range(len(TWO)))
def test_of_two_racing_calls_at_least_one_is_admitted(requests: list[Request], looking: bool) -> None:
    races = 0
    for race in _every(lambda: Race(requests, looking=looking)):
        races += 1
        _check(race, requests)
    assert races > 1


@pytest.mark.parametrize("requests", MORE, ids=range(len(MORE)))
def test_of_several_racing_calls_at_least_one_is_admitted(requests: list[Request]) -> None:
    races = 0
    for race in _every(lambda: Race(requests, looking=False)):
        races += 1
        _check(race, requests)
    assert races > 15


@pytest.mark.parametrize("requests", MORE, ids=range(len(MORE)))
def test_of_several_racing_calls_that_look_first_at_least_one_is_admitted(requests: list[Request]) -> None:
    """Too many orders for all: some, at random."""
    rng = random.Random(7)
    for _ in range(500):
        race = Race(requests, looking=True)
        while running := race.running():
            race.step(rng.choice(running))
        _check(race, requests)


def test_in_the_other_order_two_calls_can_keep_each_other_out() -> None:
    """What the order is for: this explorer does find mutual refusals where callers go their own ways."""
    requests: list[Request] = [(S[0], S[1]), (S[1], S[0])]

    def own_ways() -> Race:
        race = Race(requests, looking=False)
        flows = race.limiters[1]._flows
        flow: Any = flows._groups
        flows._groups = lambda parts: flow(parts)[::-1]  # type: ignore[method-assign]
        race.flows[1] = flows.acquire(requests[1], None, None)
        race._go(1, None)
        return race

    assert any(not any(race.decisions) for race in _every(own_ways))
