"""Callers who want the same tokens at the same moment: does exactly one of them get in, every time?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from pyslot import Limiter, Window
from pyslot.adapters import embedded
from pyslot.demo.cluster import NODES, cluster
from pyslot.demo.crew import Crew, run_crew
from pyslot.demo.figures import Chapter, Figure, Tick
from pyslot.keys import HASH_SLOTS, Naming

CALLERS, COST, LIMIT = 3, 60, 100
_TOGETHER = 0.002
"""Seconds from the moment when all callers are ready to the one when they call."""


@dataclass(frozen=True, slots=True)
class Call:
    """One caller's part in one round."""

    granted: bool
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of the rounds on one store."""

    rounds: list[tuple[Call, ...]]
    used: list[tuple[int, ...]]
    """What the two windows of each round held afterwards."""


def run(rounds: int, tick: Tick) -> Chapter:
    store = embedded.open_sync("embedded://", deadline=1.0)
    with Limiter(store):
        alone = watch(store.url, rounds, lambda done: tick(done / (2 * rounds)))
    with cluster() as url:
        apart = watch(url, rounds, lambda done: tick((rounds + done) / (2 * rounds)))
    return Chapter(
        f"{CALLERS} callers, room for one",
        f"In each of {rounds} rounds {CALLERS} processes ask at the same moment for {COST} tokens of two windows that "
        f"hold {LIMIT} each. There is room for one of them. A refused caller must not leave anything behind in either "
        f"window. Done on one server, and on a cluster of {NODES} where the two windows are on different servers.",
        [*judge("one server", alone), *judge("cluster", apart)],
    )


def judge(where: str, seen: Seen) -> list[Figure]:
    rounds = len(seen.rounds)
    grants = [sum(call.granted for call in calls) for calls in seen.rounds]
    exact = sum(number == 1 for number in grants)
    clean = sum(set(used) == {COST} for used in seen.used)
    overlapped = sum(max(call.began for call in calls) < min(call.ended for call in calls) for calls in seen.rounds)
    others = (
        f", but 0 in {grants.count(0)} and 2 or more in {rounds - exact - grants.count(0)}" if exact < rounds else ""
    )
    return [
        Figure(
            f"{where}: one granted, {CALLERS - 1} refused",
            f"in all {rounds} rounds",
            f"in {exact}{others}",
            exact == rounds > 0,
        ),
        Figure(
            f"{where}: {COST} tokens in both windows", f"after all {rounds} rounds", f"after {clean}", clean == rounds
        ),
        Figure(
            f"{where}: all {CALLERS} calls overlapped",
            "in some, else nothing is shown",
            f"in {overlapped} rounds",
            overlapped > 0,
        ),
    ]


def watch(url: str, rounds: int, tick: Callable[[int], None]) -> Seen:
    callers = run_crew(CALLERS, tick, work, url, rounds)
    with Limiter(url) as limiter:
        used = [tuple(status.used for status in limiter.peek(*windows(number))) for number in range(rounds)]
    return Seen(list(zip(*callers, strict=True)), used)


def windows(number: int) -> tuple[Window, Window]:
    """The windows of a round, in hash slots so far apart that they belong to different servers of a cluster."""
    user = _window(f"user:{number}")
    teams = (_window(f"team:{number}.{variant}") for variant in count())
    return user, next(team for team in teams if third(team) != third(user))


def _window(subject: str) -> Window:
    return Window(subject, "tokens", limit=LIMIT, per=600)


def third(window: Window) -> int:
    return window.wire(Naming()).hash_slot * NODES // HASH_SLOTS


def work(crew: Crew, url: str, rounds: int) -> Sequence[Call]:
    """What one caller does."""
    calls = []
    with Limiter(url) as limiter:
        limiter.peek(*windows(0))  # connects
        for number in range(rounds):
            user, team = windows(number)
            crew.meet(_TOGETHER)
            began = time.monotonic()
            decision = limiter.try_acquire(user.cost(COST), team.cost(COST))
            calls.append(Call(bool(decision), began, time.monotonic()))
            if decision.permit:
                decision.permit.finish()  # the charge stands
                crew.done.value += 1
    return calls
