"""Plays traffic through a limiter by the traffic's own times."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from pyslot.adapters.base import Store
from pyslot.decision import Decision, Outcome
from pyslot.kinds import Asked, Charge
from pyslot.limiter import Limiter
from pyslot.loader import Call
from pyslot.permit import Permit


class Arrival(Protocol):
    """What is played."""

    @property
    def at(self) -> int:
        """When it arrives, in ms."""


R = TypeVar("R", bound=Arrival)


class Driven:
    """A store whose scripts go by the time that is set here, not by the server's clock: minutes pass in a second."""

    cluster: bool

    def __init__(self, store: Store) -> None:
        self.cluster = store.cluster
        self._store = store
        self.now = 0

    def run(self, call: Call) -> Sequence[int]:
        if not call.head:  # `reset` knows no time
            return self._store.run(call)
        return self._store.run(call._replace(head=(b"%d" % self.now, *call.head[1:])))

    def close(self) -> None:
        self._store.close()


class Plan(NamedTuple):
    """What one request asks for, and what becomes of it."""

    asked: Sequence[Asked]
    hold_ms: int
    real: Sequence[Charge]
    """What it settles to in the end."""


class Start(NamedTuple, Generic[R]):
    """A request has arrived, and was granted or refused."""

    n: int
    """Its place in the traffic."""
    request: R
    decision: Decision[Permit]
    seconds: float
    """Spent on the decision."""


class End(NamedTuple, Generic[R]):
    """A granted request is complete."""

    n: int
    request: R
    at: int
    """When, in ms."""
    outcome: Outcome


def play(
    store: Driven, limiter: Limiter, traffic: Iterable[R], plan: Callable[[R], Plan]
) -> Iterator[Start[R] | End[R]]:
    """What happens, in order; what ends in the same millisecond as another starts makes room for it.

    `limiter` is one over `store`. Between two events the store's time stands still: its limits may be looked at.
    """
    flying: list[tuple[int, int, R, Permit, Sequence[Charge]]] = []

    def land(until: int | None) -> Iterator[End[R]]:
        while flying and (until is None or flying[0][0] <= until):
            at, n, request, permit, real = heapq.heappop(flying)
            store.now = at
            permit.settle(*real)
            yield End(n, request, at, permit.finish())

    for n, request in enumerate(traffic):
        yield from land(request.at)
        asked, hold_ms, real = plan(request)
        store.now = request.at
        began = time.perf_counter()
        decision = limiter.try_acquire(*asked)
        seconds = time.perf_counter() - began
        if decision.permit:
            heapq.heappush(flying, (request.at + hold_ms, n, request, decision.permit, real))
        yield Start(n, request, decision, seconds)
    yield from land(None)
