"""The reference model and the scripts on real servers are one: every reply, every key, after every step.

PYSLOT_EXAMPLES=20000 runs so many examples in place of the few of a normal run; PYSLOT_SERVERS=all compares with every
server of the table.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from pyslot.model import HOUR, Gauge, Model
from tests.conftest import GetServer
from tests.scripts.book import Book
from tests.scripts.runs import GAUGES, KEYS, Data, Step, a_run
from tests.scripts.wire import SCRIPTS, Command, Wire, chunks, connect
from tests.servers.binaries import SERVERS
from tests.servers.process import Server

NAMES = SERVERS if os.environ.get("PYSLOT_SERVERS") == "all" else ("redis-6.2", "valkey-9.1")
EXAMPLES = int(os.environ.get("PYSLOT_EXAMPLES", "400"))

random_runs = settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
pytestmark = pytest.mark.timeout(0 if EXAMPLES > 1_000 else 120)


def data(model: Model) -> Data:
    found: Data = {}
    for key, value in model.data.items():
        if isinstance(value, Gauge):
            assert sorted((end, id) for id, end in value.held.items()) == value.ends
            found[key] = dict(value.held)
        else:
            charges = {b":" + id: charge for id, charge in value.charges.items()}
            found[key] = {b"s": value.start, b"n": value.used, **charges}
    return found


LOOK: list[Command] = [
    command
    for key in KEYS
    for command in ((b"ZRANGE", key, 0, -1, b"WITHSCORES") if key in GAUGES else (b"HGETALL", key), (b"PTTL", key))
]


def seen(replies: Sequence[object]) -> tuple[Data, dict[bytes, int]]:
    """The data and the times to live, from the replies to `LOOK`."""
    found: Data = {}
    ttls = {}
    for key, (values, ttl) in zip(KEYS, chunks(replies, 2), strict=True):
        if values:
            assert isinstance(values, list)
            # A score is printed as a double is, maybe with an exponent.
            number = float if key in GAUGES else int
            found[key] = {name: int(number(value)) for name, value in chunks(values, 2)}
            assert isinstance(ttl, int)
            ttls[key] = ttl
        else:
            assert ttl == -2
    return found, ttls


@pytest.fixture
def wires(get_server: GetServer) -> Iterator[dict[str, Wire]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(connect(get_server(name))) for name in NAMES}


@random_runs
@given(a_run)
def test_the_model_and_the_servers_agree(wires: dict[str, Wire], run: list[Step]) -> None:
    born = time.time_ns() // 1_000_000
    model = Model(lambda: born)
    wanted = []
    book = Book()
    for step in run:
        before = data(model)
        reply = model.run(step.script, step.keys, step.args())
        after = data(model)
        book.enter(step, reply, before, after)
        wanted.append((reply, after, {key: value.expires - born for key, value in model.data.items()}))
    for name, wire in wires.items():
        commands: list[Command] = [(b"UNLINK", *KEYS)]
        for step in run:
            commands += ((b"EVALSHA", SCRIPTS[step.script].sha, len(step.keys), *step.keys, *step.args()), *LOOK)
        wire.many((b"SCRIPT", b"LOAD", script.text) for script in SCRIPTS.values())
        _, *replies = wire.many(commands)
        slack = time.time_ns() // 1_000_000 - born + 5
        for step, record, (reply, after, ttls) in zip(run, chunks(replies, 1 + len(LOOK)), wanted, strict=True):
            assert record[0] == reply, (name, step)
            found, lives = seen(record[1:])
            assert found == after, (name, step)
            assert all(abs(lives[key] - ttl) <= slack for key, ttl in ttls.items()), (name, step, lives, ttls)


@random_runs
@given(a_run)
def test_a_batch_is_its_permits_one_after_another(run: list[Step]) -> None:
    whole, single = Model(lambda: 0), Model(lambda: 0)
    for step in run:
        reply = whole.run(step.script, step.keys, step.args())
        if step.mode == b"dry" or len(step.permits) == 1 or step.script in ("count", "peek", "reset"):
            assert single.run(step.script, step.keys, step.args()) == reply
            continue
        one_by_one = []
        for permit in step.permits:
            alone = step._replace(permits=(permit,))
            one_by_one += single.run(step.script, step.keys, alone.args())
        if step.script in ("acquire", "reserve", "admit"):
            # A batch reports with its first permit the leases it found ended; alone, the first granted one does, also
            # of a lease that a later one of the batch takes anew.
            size = 1 + 4 * len(step.keys)
            for at in range(4, size, 4):
                assert sum(reply[at::size]) == reply[at] <= sum(one_by_one[at::size])
                for found in (reply, one_by_one):
                    found[at::size] = [0] * len(step.permits)
        assert reply == one_by_one
        assert data(whole) == data(single)
        assert [value.expires for value in whole.data.values()] == [value.expires for value in single.data.values()]


def test_without_a_time_of_its_own_a_call_takes_the_servers(server: Server) -> None:
    with connect(server) as wire:
        before = time.time_ns() // 1_000_000
        granted = wire.script("admit", GAUGES[:1] + KEYS[-1:], "", "", "s", 1, 60_000, "w", 5, 30_000, "a", 3)
        after = time.time_ns() // 1_000_000
        assert granted == [1, 0, 1, 60_000, 0, 0, 3, 30_000, 0]
        found, ttls = seen(wire.many(LOOK))
    end, start = found[GAUGES[0]][b"a"], found[KEYS[-1]][b"s"]
    assert before <= start <= after
    assert end == start + 60_000
    assert 0 <= 60_000 + 2 * HOUR - ttls[GAUGES[0]] < 5_000
    assert 0 <= 30_000 + 60_000 - ttls[KEYS[-1]] < 5_000
