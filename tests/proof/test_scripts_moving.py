"""Hash slots that move from node to node while callers hold, take and give back what is in them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Self

import pytest

from pyslot import AsyncLimiter, Limiter, Slots, StoreUnavailable, Window
from pyslot.keys import hash_slot
from tests.adapters.helpers import KINDS, Kind
from tests.contract.backings import Served
from tests.contract.facade import Facade
from tests.proof.clients import THOROUGH, call
from tests.servers.binaries import CLUSTERS
from tests.servers.process import Cluster, Server

SUBJECT = "a"
SLOT = hash_slot(b"{a}")
MOVED = [(name, kind) for name in CLUSTERS for kind in KINDS]
if not THOROUGH:
    MOVED = [("redis-8.2", KINDS[0]), ("valkey-9.1", KINDS[3])]
SLOTS, TOKENS = Slots(SUBJECT, 3, lease=20), Window(SUBJECT, "tokens", 10**9, 600)


class Move:
    """The hash slot goes round the masters, key by key as redis-cli does it, until told to stop."""

    def __init__(self, cluster: Cluster, pause: float) -> None:
        self._masters = cluster.masters
        self._pause = pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rounds = 0
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        self.home = self.owner = next(node for node in self._masters if _owns(node))
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.owner is not self.home:
            self._step(self.home)
        if self.error:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._step(next(node for node in self._masters if node is not self.owner))
                self.rounds += 1
        except Exception as error:  # noqa: BLE001 - raised where the test ends
            self.error = error

    def _step(self, target: Server) -> None:
        owner = self.owner
        target.command("CLUSTER", "SETSLOT", SLOT, "IMPORTING", owner.node_id)
        owner.command("CLUSTER", "SETSLOT", SLOT, "MIGRATING", target.node_id)
        time.sleep(self._pause)
        while keys := owner.command("CLUSTER", "GETKEYSINSLOT", SLOT, 1):
            # A key at a time: between them the gauge is on one side and the window on the other.
            with contextlib.suppress(RuntimeError):
                owner.command("MIGRATE", target.host, target.port, keys[0], 0, 5000)
            time.sleep(self._pause)
        for node in (target, owner, *self._masters):
            node.command("CLUSTER", "SETSLOT", SLOT, "NODE", target.node_id)
        self.owner = target
        time.sleep(self._pause)


def _owns(node: Server) -> bool:
    try:
        node.command("EXISTS", "{a}")
    except RuntimeError:
        return False
    return True


def _finish(permit: Any, _: object) -> Any:  # noqa: ANN401 - of either limiter
    return permit.finish()


@pytest.fixture
def moving(cluster: Cluster) -> Iterator[Move]:
    with Move(cluster, 0.02) as move:
        yield move


@pytest.mark.parametrize(("cluster_name", "kind"), MOVED, ids=str)
async def test_under_load_a_moving_slot_loses_no_unit_and_admits_none_too_many(
    kind: Kind, cluster: Cluster, moving: Move
) -> None:
    """Calls that meet keys on both sides (TRYAGAIN) may fail: what was granted is granted, what failed left nothing."""
    facade = Facade((Limiter if kind.blocking else AsyncLimiter)(kind.url(cluster.address, "+cluster"), breaker=False))
    facade.limiter._flows.upkeep.backlog._again_after = 0.3
    inside, most, spent, failed = 0, 0, 0, 0

    async def work() -> None:
        nonlocal inside, most, spent, failed
        end = time.monotonic() + 3
        while time.monotonic() < end:
            try:
                decision = await call(facade, lambda it: it.try_acquire(SLOTS, TOKENS.cost(10)))
            except StoreUnavailable:
                failed += 1
                continue
            if not decision:
                await asyncio.sleep(0.005)
                continue
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.002)
            inside -= 1
            decision.permit.settle(TOKENS.cost(7))
            spent += 7
            with contextlib.suppress(StoreUnavailable):  # then it is sent again in the background
                await call(facade, partial(_finish, decision.permit))

    await asyncio.gather(*(work() for _ in range(5)))
    rounds = moving.rounds
    moving._stop.set()
    await asyncio.to_thread(moving._thread.join)
    found: Any = None
    async with asyncio.timeout(15):
        while found != (0, spent) or len(facade.limiter._flows.upkeep.backlog):
            with contextlib.suppress(StoreUnavailable):
                held = await call(facade, lambda it: it.count(SLOTS))
                found = held, (await call(facade, lambda it: it.peek(TOKENS)))[0].used
            await asyncio.sleep(0.05)
    assert rounds >= 3
    assert 0 < most <= 3
    assert spent
    served = Served(f"redis://{cluster.address}", cluster.masters)
    assert all(kept.ttl > 0 for kept in served.look().values())
    served.close()
    print(f"{kind}: {rounds} moves, {spent // 7} permits, {failed} calls that failed")  # noqa: T201 - see it with -s
    await facade.close()
