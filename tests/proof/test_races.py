"""Races of real processes over several hash slots of a real cluster, and what they look like without the rules.

Run with -s to see how many rounds really overlapped.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from multiprocessing.pool import AsyncResult
from multiprocessing.synchronize import Barrier, Event
from typing import Any, NamedTuple

import pytest

from pyslot import Limiter, Slots, Window
from pyslot.calls import Parts
from pyslot.keys import hash_slot
from tests.servers.process import Cluster

SPAWN = multiprocessing.get_context("spawn")
ROUNDS = 1000 if os.environ.get("PYSLOT_PROOF") == "all" else 300
A_PAIR, THREE = ((0, 1), (1, 0)), ((0, 1), (1, 2), (2, 0))


class Try(NamedTuple):
    """One caller's part in a round; times by the machine's monotonic clock."""

    began: float
    ended: float
    granted: bool


def _names(n: int) -> list[str]:
    """Three subjects of a round of its own, in ascending order of their hash slots."""
    return sorted((f"{name}{n}" for name in "xyz"), key=lambda name: hash_slot(name.encode()))


def _racer(url: str, wants: Sequence[int], rounds: int, ordered: bool) -> list[Try]:
    tries = []
    with Limiter(url, deadline=10) as limiter:
        if not ordered:
            groups: Any = limiter._flows._groups
            # As they come, whatever their hash slots: what a caller would do who knows nothing of the others.
            own: dict[str, int] = {}

            def as_they_come(parts: Parts) -> list[Parts]:
                return sorted(groups(parts), key=lambda group: own.get(group[0].limit.subject, 0))

            limiter._flows._groups = as_they_come  # type: ignore[method-assign]
        limiter.peek(Slots("warm up", 1))
        for n in range(rounds):
            names = _names(n)
            limits = [Window(names[k], "tokens", 1, 600).cost(1) for k in wants]
            if not ordered:
                own.update({names[k]: at for at, k in enumerate(wants)})
            _barrier.wait(30)
            began = time.monotonic()
            decision = limiter.try_acquire(*limits)
            tries.append(Try(began, time.monotonic(), bool(decision)))
    return tries


_barrier: Barrier


def _share(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 - a barrier can only be inherited
    _barrier = barrier


def race(url: str, wants: Sequence[Sequence[int]], *, ordered: bool) -> list[tuple[Try, ...]]:
    """Every caller in a process of its own, ROUNDS times."""
    barrier = SPAWN.Barrier(len(wants))
    with SPAWN.Pool(len(wants), _share, (barrier,)) as pool:
        running: list[AsyncResult[list[Try]]] = [
            pool.apply_async(_racer, (url, want, ROUNDS, ordered)) for want in wants
        ]
        return list(zip(*(each.get(50) for each in running), strict=True))


def overlapped(tries: Sequence[Try]) -> bool:
    return max(each.began for each in tries) < min(each.ended for each in tries)


# Mutual rejection, inferred from litellm 1.110.2 (_settle_pipelined_descriptor_groups)
@pytest.mark.slow
@pytest.mark.parametrize(("cluster_name", "wants"), [("redis-8.2", A_PAIR), ("valkey-9.1", THREE)])
def test_of_processes_that_race_for_one_unit_somebody_always_gets_in(
    cluster: Cluster, cluster_name: str, wants: Sequence[Sequence[int]]
) -> None:
    """One unit is free in each, and every two callers want one in common."""
    url = f"{cluster_name.partition('-')[0]}+cluster://{cluster.address}"
    rounds = race(url, wants, ordered=True)
    met = sum(overlapped(tries) for tries in rounds)
    print(f"{cluster_name}: {met} of {len(rounds)} rounds overlapped")  # noqa: T201 - see it with -s
    assert met > len(rounds) / 20, "too few met to prove anything"
    # Any two of them want a limit of one in common, so it is exactly one.
    assert [sum(each.granted for each in tries) for tries in rounds] == [1] * len(rounds)
    with Limiter(url) as limiter:
        for n in range(0, ROUNDS, 20):
            used = sum(status.used for status in limiter.peek(*(Window(name, "tokens", 1, 600) for name in _names(n))))
            assert used == 2, "the winner's two, and nothing of anybody else's"


@pytest.mark.slow
@pytest.mark.parametrize("cluster_name", ["valkey-9.1"])
def test_without_the_order_they_refuse_each_other(cluster: Cluster, cluster_name: str) -> None:
    """The negative control: else the test above would prove nothing."""
    rounds = race(f"valkey+cluster://{cluster.address}", A_PAIR, ordered=False)
    nobody = sum(not any(each.granted for each in tries) for tries in rounds)
    print(f"{cluster_name}, unordered: nobody got in in {nobody} of {len(rounds)} rounds")  # noqa: T201 - as above
    assert nobody > 0


FIRST, LAST = sorted(("a", "b"), key=lambda name: hash_slot(name.encode()))
FREE, FULL = Slots(FIRST, 1), Window(LAST, "tokens", 1, 600)


def _beggar(url: str, looking: bool, ready: Event, stop: Event) -> int:
    """Wants what it can't have, and what somebody else can, again and again."""
    tries = 0
    with Limiter(url, deadline=10) as limiter:
        if not looking:
            limiter._flows._refused_lately = lambda parts: False  # type: ignore[method-assign]  # noqa: ARG005
        while not stop.is_set():
            assert not limiter.try_acquire(FREE, FULL.cost(1))
            tries += 1
            ready.set()
    return tries


def _beside_beggars(url: str, *, looking: bool) -> tuple[int, int]:
    """How often a caller was refused that wants only what is free, of 300 times; and how often the others asked."""
    with Limiter(url, deadline=10) as limiter, SPAWN.Manager() as manager, SPAWN.Pool(2) as pool:
        assert limiter.charge(FULL.cost(1))
        ready, stop = [manager.Event() for _ in range(2)], manager.Event()
        begging = [pool.apply_async(_beggar, (url, looking, each, stop)) for each in ready]
        assert all(each.wait(20) for each in ready)
        refused = 0
        for _ in range(300):
            decision = limiter.try_acquire(FREE)
            refused += not decision
            if decision:
                decision.require().finish()
        stop.set()
        tries = sum(each.get(20) for each in begging)
        assert limiter.count(FREE) == 0
        return refused, tries


@pytest.mark.slow
@pytest.mark.parametrize("cluster_name", ["valkey-9.1"])
def test_those_who_cannot_get_in_never_keep_out_one_who_can(cluster: Cluster, cluster_name: str) -> None:
    url = f"valkey+cluster://{cluster.address}"
    refused, tries = _beside_beggars(url, looking=True)
    print(f"{cluster_name}: {refused} of 300 refused beside {tries} hopeless calls")  # noqa: T201 - as above
    assert refused == 0
    assert tries > 20
    with Limiter(url) as limiter:
        limiter.reset(FREE, FULL)
    refused, tries = _beside_beggars(url, looking=False)
    print(f"{cluster_name}, without a look: {refused} of 300 refused beside {tries}")  # noqa: T201 - as above
    assert refused > 0, "the negative control: else the above would prove nothing"
