"""Out of memory: admission fails whole, and what gives back or holds on still works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import hiredis
import pytest

from tests.conftest import PrivateServer
from tests.scripts.wire import SCRIPTS, Command, Wire, connect, evaluate

NOW, LENGTH = 1_700_000_000_000, 60_000
S, T, W, X = "{t}:s:1", "{t}:s:2", "{t}:w:1", "{t}:w:2"
ALL = (S, T, W, X)

pytestmark = pytest.mark.parametrize("name", ["redis-6.2", "redis-7.0", "redis-8.2", "valkey-9.1"])


@pytest.fixture
def wire(private_server: PrivateServer, name: str) -> Iterator[Wire]:
    with connect(private_server(name, "--maxmemory-policy", "noeviction")) as wire:
        yield wire


def admit(keys: tuple[str, ...], now: int, *ids: str, limit: str = "9", mode: str = "") -> Command:
    rules: list[str | int] = [word for key in keys for word in (key[4], limit, LENGTH)]
    permits: list[str | int] = []
    for id in ids:
        permits += (id, *[1 for key in keys if key in (W, X)])
    return evaluate("admit", keys, [now, mode, *rules, *permits])


HELD = [admit(ALL, NOW, "a", "b")]
ENDED = [*HELD, *[("PEXPIRE", key, 7_300_000) for key in (S, T)]]
"""A time to live so short that whoever takes a slot must lengthen it."""
WORLDS: dict[str, tuple[list[Command], int]] = {
    "nothing there": ([], NOW),
    "others hold": (HELD, NOW),
    "leases ended and windows rolled": (ENDED, NOW + LENGTH),
    "windows rolled, slots live": ([admit((W, X), NOW, "a"), admit((S, T), NOW + 1, "b")], NOW + LENGTH),
    "windows started in the future": (HELD, NOW - 5_000),
    "one window rolled": ([admit((W,), NOW, "a"), admit((X,), NOW + 9, "b")], NOW + LENGTH),
    "one gauge is new": ([admit((S,), NOW, "a")], NOW + LENGTH),
}
KEYS = [(S,), (S, T), (W,), (W, X), (S, W), (W, S), (X, S, W, T)]


def held(wire: Wire) -> list[Any]:
    """All that there is, and the times to live to about twenty seconds."""
    gauges = wire.many(("ZRANGE", key, 0, -1, "WITHSCORES") for key in (S, T))
    windows = wire.many(("HGETALL", key) for key in (W, X))
    lives = wire.many(("PTTL", key) for key in ALL)
    return [*gauges, *windows, *[round(ttl / 20_000) for ttl in lives]]


def full(wire: Wire) -> None:
    assert wire.run("CONFIG", "SET", "maxmemory", 1) == b"OK"


def fails(reply: object) -> bool:
    return isinstance(reply, hiredis.ReplyError) and "OOM" in str(reply)


@pytest.mark.parametrize("world", WORLDS)
def test_admission_fails_whole(wire: Wire, world: str) -> None:
    before, now = WORLDS[world]
    for keys in KEYS:
        wire.many([("CONFIG", "SET", "maxmemory", 0), ("FLUSHALL",), *before])
        was = held(wire)
        full(wire)
        calls = [admit(keys, now, "new"), admit(keys, now, "new", "x", "y")]
        spans = [word for _ in keys for word in ("9", LENGTH)]
        if not {W, X} & {*keys}:
            calls.append(evaluate("acquire", keys, [now, "", *spans, "new"]))
        if not {S, T} & {*keys}:
            calls.append(evaluate("reserve", keys, [now, "", *spans, "new", *[1 for _ in keys]]))
        for call in calls:
            assert fails(wire.run(*call)), (world, keys)
            assert held(wire) == was, (world, keys)
        # Nobody is kept from asking; and with memory again all is as it should be.
        assert wire.run(*admit(keys, now, "new", mode="dry"))[0] == 1
        if now >= NOW:
            assert wire.run(*admit(keys, now, "new", limit="0"))[0] == 0
        assert held(wire) == was
        wire.run("CONFIG", "SET", "maxmemory", 0)
        assert wire.run(*calls[0])[0] == 1


def test_what_is_held_can_be_renewed_settled_and_given_back(wire: Wire) -> None:
    wire.many(HELD)
    full(wire)
    later = NOW + 1_000
    assert wire.script("renew", (S, T), later, LENGTH, LENGTH, "a", "b") == [2, 1, 1, 2, 1, 1]
    assert wire.script("settle", (W, X), later, LENGTH, LENGTH, "a", 5, 6, "b", 7, "-") == [2, 1, 1, 2, 1, 1]
    assert wire.script("settle", (W, X), later, LENGTH, LENGTH, "a", 4, 3) == [2, 1, 1]
    renewed, settled = b"%d" % (later + LENGTH), b"%d" % NOW
    assert wire.run("ZRANGE", S, 0, -1, "WITHSCORES") == [b"a", renewed, b"b", renewed]
    fields = dict(zip(*[iter(wire.run("HGETALL", W))] * 2, strict=True))
    assert fields == {b"s": settled, b"n": b"11", b":a": b"4", b":b": b"7"}
    assert wire.script("release", (T,), later, "a") == [2, 1]
    assert wire.script("finish", ALL, later, "s", "s", LENGTH, LENGTH, "a", 2, "-", "b", 0, 0) == [
        *(1, 1, 0, 1, 1),
        *(2, 1, 1, 1, 1),
    ]
    assert wire.script("peek", ALL, later, "s", "s", LENGTH, LENGTH) == [0, 0, 0, 0, 2, 59_000, 3, 59_000]
    assert wire.script("reset", ALL) == [2]


def test_a_lapsed_slot_can_be_released(wire: Wire) -> None:
    wire.many(HELD)
    full(wire)
    assert wire.script("release", (S,), NOW + LENGTH, "a") == [0, 0]
    assert wire.run("ZRANGE", S, 0, -1) == [b"b"]


def without(text: str, line: str) -> str:
    assert text.count(line) == 1
    return text.replace(line, "")


@pytest.mark.parametrize("key", [S, W])
def test_in_another_order_of_writes_admission_would_not_fail(wire: Wire, key: str) -> None:
    text = SCRIPTS["admit"].text.decode()
    # Without what the parts are indented by, which is as much as the loops around them.
    text = re.sub(r"^ +", "", text, flags=re.MULTILINE)
    if key == S:
        add = "if same then call('ZADD', key, unpack(state[NEW])) else call('ZADD', key, ends, ids[skip + 1]) end\n"
        broken = without(text, add).replace("-- The key must outlive", add + "-- The key must outlive")
    else:
        broken = without(text, "call('HSET', key, 's', now)\ncall('UNLINK'").replace(
            "would no longer once UNLINK had written.\n", "\ncall('UNLINK'"
        )
    wire.many(ENDED)
    full(wire)
    was = held(wire)
    call = admit((key,), NOW + LENGTH, "new")
    assert fails(wire.run(*call))
    assert held(wire) == was
    assert not fails(wire.run("EVAL", broken, *call[2:]))
    assert held(wire) != was
