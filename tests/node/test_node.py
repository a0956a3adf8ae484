"""A program in Node keeps the contract, and shares limits with this library."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis

from pyslot import Limiter, Slots, Window
from pyslot.keys import Naming
from pyslot.kinds import Limit
from tests.conftest import GetServer
from tests.scripts.readme import SCRIPTS_FOLDER, sessions
from tests.servers.process import Server

HERE = Path(__file__).parent
NODE_MODULES = HERE / "node_modules"
LEASE, PER = 30_000, 600_000


@pytest.fixture(scope="session")
def ioredis() -> None:
    """Have ioredis, fetched from the npm registry the first time."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        reason = f"no {' and no '.join(missing)} on the PATH: the second language is not tried"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with (HERE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test runs may want it at once
        if not (NODE_MODULES / "ioredis").exists():
            command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent"]
            run = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
            if run.returncode:
                reason = f"npm could not fetch ioredis: {run.stderr.strip()[-500:]}"
                if os.environ.get("CI"):
                    pytest.fail(reason)
                pytest.skip(reason)


@pytest.fixture
def shared(ioredis: None, get_server: GetServer) -> Server:
    return get_server("valkey-9.1")


def node(server: Server, what: str, **options: object) -> Any:  # noqa: ANN401 - depends on what
    command = ["node", "contract.mjs", str(server.port), str(SCRIPTS_FOLDER), what, json.dumps(options)]
    run = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=50, check=False)
    assert not run.returncode, run.stderr
    return json.loads(run.stdout)


def as_node(limit: Limit) -> dict[str, object]:
    """A limit as the other program declares it."""
    common: dict[str, object] = {"subject": limit.subject, "limit": limit.limit, "enforce": limit.enforce}
    common |= {} if limit.tag is None else {"tag": limit.tag}
    if isinstance(limit, Slots):
        return common | {"lease": limit.lease_ms}
    return common | {"meter": limit.meter, "per": limit.per_ms}


@pytest.mark.parametrize("name", ["redis-6.2", "redis-8.2", "valkey-9.1"])
def test_it_runs_every_example_of_the_contract(ioredis: None, get_server: GetServer, name: str) -> None:
    assert node(get_server(name), "examples") == sum(len(session) for session in sessions())


LIMITS: list[Limit] = [
    Slots("key:sk-1", 5),
    Slots("{curly} 100% käse", 5, tag="org:{acme}%"),
    Window("team:a", "tokens", 100, 0.25),
    Window("t{}%", "micro:dollars {%}", None, 3600, tag="ü"),
]


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_its_keys_are_ours(shared: Server, limit: Limit) -> None:
    assert node(shared, "key", limit=as_node(limit)).encode() == limit.wire(Naming()).key


def test_what_one_takes_the_other_sees_and_ends(shared: Server) -> None:
    slots, tokens = Slots("a:{b}", 1, lease=30), Window("a:{b}", "tokens", 100, 600)
    limits = [as_node(slots), as_node(tokens)]
    with Limiter(f"valkey://{shared.address}") as limiter:
        permit = limiter.try_acquire(slots, tokens.cost(60), id="ours").require()
        refused = node(shared, "admit", limits=limits, id="theirs", costs={"tokens": 60})
        assert refused["status"] == 0
        assert not refused["never"]
        assert 0 < refused["retryAfter"] <= PER
        assert node(shared, "admit", limits=limits, id="theirs", costs={"tokens": 101})["never"]
        assert node(shared, "admit", limits=limits, id="ours", costs={"tokens": 60})["status"] == 2
        assert node(shared, "finish", limits=limits, id="theirs") == [0, 0, 0]
        assert node(shared, "finish", limits=limits, id="ours", used={"tokens": 5}) == [2, 1, 1]
        assert permit.finish().late

        assert node(shared, "admit", limits=limits, id="theirs", costs={"tokens": 90})["status"] == 1
        decision = limiter.try_acquire(slots, tokens.cost(60))
        assert decision.refused_by == (slots, tokens)
        theirs = limiter.handle("theirs", slots, tokens)
        theirs.settle(tokens.cost(10))
        assert theirs.finish().settled
        assert limiter.count(slots) == 0
        assert limiter.peek(tokens)[0].used == 15


@pytest.mark.slow
def test_both_at_once_stay_inside_one_limit_and_lose_no_unit(shared: Server) -> None:
    slots, tokens = Slots("a", 3, lease=30), Window("a", "tokens", 10**9, 600)
    client = redis.Redis(port=shared.port, protocol=2)
    spent, most = 0, 0
    with Limiter(f"valkey://{shared.address}") as limiter, ThreadPoolExecutor(2) as threads:
        options = {"limits": [as_node(slots), as_node(tokens)], "seconds": 3}
        others = [threads.submit(node, shared, "work", id=uuid4().hex, **options) for _ in range(2)]
        while not all(other.done() for other in others):
            with limiter.acquire(slots, tokens.cost(10), wait=5) as permit:
                most = max(most, client.incr("inside"))
                client.decr("inside")
                permit.settle(tokens.cost(3))
                spent += 3
        found = [other.result() for other in others]
        assert all(other["granted"] for other in found)
        assert max(most, *(other["most"] for other in found)) <= 3
        assert any(other["refused"] for other in found), "they never met"
        assert limiter.count(slots) == 0
        assert limiter.peek(tokens)[0].used == spent + sum(other["spent"] for other in found)
    client.close()
