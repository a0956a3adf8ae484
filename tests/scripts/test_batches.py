"""Many permits in one call, many ended leases, and the largest numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hiredis
import pytest

from pyslot.model import BEYOND, Model, WrongArguments
from tests.scripts.wire import SCRIPTS, Wire, connect
from tests.servers.process import Server

NOW, LENGTH = 1_700_000_000_000, 60_000
G, W = "{t}:s", "{t}:w"
MOST = 2**53 - 1

Words = list[str | int]


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    with connect(server) as wire:
        yield wire


def call(name: str, count: int, keys: int = 1) -> tuple[list[str], Words]:
    """Keys and arguments of a call with so many permits."""
    gauges = [f"{G}:{k}" for k in range(keys)]
    windows = [f"{W}:{k}" for k in range(keys)]
    rule: Words = ["-", LENGTH]
    rules: dict[str, tuple[list[str], Words, int]] = {
        "acquire": (gauges, [NOW, "", *rule * keys], 0),
        "reserve": (windows, [NOW, "", *rule * keys], keys),
        "admit": (gauges + windows, [NOW, "", *["s", *rule] * keys, *["w", *rule] * keys], keys),
        "release": (gauges, [NOW], 0),
        "renew": (gauges, [NOW, *[LENGTH] * keys], 0),
        "settle": (windows, [NOW, *[LENGTH] * keys], keys),
        "finish": (gauges + windows, [NOW, *["s"] * keys, *[LENGTH] * keys], keys),
    }
    names, head, figures = rules[name]
    permits: Words = []
    for p in range(count):
        permits.append(f"p{p}")
        permits += [p] * figures
    return names, [*head, *permits]


BATCHED = ("acquire", "reserve", "admit", "release", "renew", "settle", "finish")


def in_model(model: Model, name: str, keys: list[str], args: Words) -> list[int]:
    return model.run(name, [key.encode() for key in keys], [str(arg).encode() for arg in args])


def test_a_thousand_permits_are_served_and_more_are_an_error_before_any_write(wire: Wire) -> None:
    for name in BATCHED:
        for count in (0, 1_001, 20_000):
            keys, args = call(name, count)
            figures = {"acquire": 1, "release": 1, "renew": 1}.get(name, 2)
            error = (
                f"ERR pyslot: expected 1 to 1000 permits of {figures} arguments each, got {count * figures} arguments"
            )
            reply = wire.script(name, keys, *args)
            assert isinstance(reply, hiredis.ReplyError)
            assert str(reply) == error
            with pytest.raises(WrongArguments) as caught:
                in_model(Model(lambda: NOW), name, keys, args)
            assert str(caught.value) == error
        assert wire.run("DBSIZE") == 0
    for name in BATCHED:
        for count in (1, 1_000):
            keys, args = call(name, count)
            assert len(wire.script(name, keys, *args)) % count == 0


def test_half_a_permit_is_an_error(wire: Wire) -> None:
    for name in ("reserve", "admit", "settle", "finish"):
        keys, args = call(name, 3, keys=2)
        reply = wire.script(name, keys, *args[:-1])
        assert str(reply) == "ERR pyslot: expected 1 to 1000 permits of 3 arguments each, got 8 arguments"
    assert wire.run("DBSIZE") == 0


def test_a_thousand_permits_over_a_dozen_keys_are_one_call(wire: Wire) -> None:
    model = Model(lambda: NOW)
    for name in ("admit", "admit", "settle", "renew", "finish", "finish"):
        keys, args = call(name, 1_000, keys=12 if name == "renew" else 6)
        assert wire.script(name, keys, *args) == in_model(model, name, keys, args)


def test_ended_leases_are_dropped_a_thousand_at_a_time_and_each_counted_once(wire: Wire) -> None:
    count = 100_000
    for start in range(0, count, 1_000):
        slots = [word for i in range(start, start + 1_000) for word in (NOW - 1 - i % 7, f"old{i}")]
        wire.run("ZADD", G, *slots)
    wire.run("ZADD", G, NOW, "old-to-the-millisecond", NOW + 1, "live")
    assert wire.script("count", [G], NOW) == [1]
    # Who is refused drops nothing.
    assert wire.script("acquire", [G], NOW, "", 1, LENGTH, "x") == [0, 1, 1, 1, 0]
    found = []
    for i in range(102):
        status, verdict, used, _, ended = wire.script("acquire", [G], NOW, "", "-", LENGTH, f"n{i}")
        assert (status, verdict, used) == (1, 0, 2 + i)
        found.append(ended)
    assert found == [*[1_000] * 100, 1, 0]
    assert wire.run("ZCARD", G) == 103


def test_a_slot_taken_anew_after_its_lease_is_not_counted_as_dropped(wire: Wire) -> None:
    wire.script("acquire", [G], NOW, "", 2, LENGTH, "a", "b")
    assert wire.script("acquire", [G], NOW + LENGTH, "", 2, LENGTH, "a") == [1, 0, 1, LENGTH, 1]
    assert wire.run("ZRANGE", G, 0, -1) == [b"a"]


@pytest.mark.parametrize("most", [10**15, MOST - 1, MOST])
def test_the_largest_numbers_are_exact(wire: Wire, most: int) -> None:
    def reserve(id: str, cost: int) -> Any:  # noqa: ANN401 - the reply
        return wire.script("reserve", [W], NOW, "", most, LENGTH, id, cost)

    assert reserve("a", most - 1) == [1, 0, most - 1, LENGTH, 0]
    assert reserve("b", 2) == [0, 1, most - 1, LENGTH, 0]
    assert reserve("b", 1) == [1, 0, most, LENGTH, 0]
    assert reserve("c", 1) == [0, 1, most, LENGTH, 0]
    assert reserve("c", 0) == [1, 0, most, LENGTH, 0]
    if most < MOST:
        assert reserve("d", most + 1) == [0, 2, most, LENGTH, 0]
    assert wire.run("HMGET", W, "n", ":a", ":b") == [b"%d" % n for n in (most, most - 1, 1)]
    assert wire.script("settle", [W], NOW, LENGTH, "b", 0) == [2, 1]
    assert wire.script("peek", [W], NOW, LENGTH) == [most - 1, LENGTH]
    assert wire.script("finish", [W], NOW, LENGTH, "a", most - 2) == [2, 1]
    assert wire.script("peek", [W], NOW, LENGTH) == [most - 2, LENGTH]


@pytest.mark.parametrize("now", [10**15, MOST - LENGTH])
def test_late_times_are_exact(wire: Wire, now: int) -> None:
    assert wire.script("admit", [G, W], now, "", "s", 2, LENGTH, "w", 9, LENGTH, "a", 1)[0] == 1
    last = now + LENGTH - 1
    assert wire.script("peek", [G, W], last, "s", LENGTH) == [1, 1, 1, 1]
    assert wire.script("count", [G], last) == [1]
    assert wire.script("peek", [G, W], last + 1, "s", LENGTH) == [0, 0, 0, 0]
    assert wire.script("acquire", [G], last, "", 1, LENGTH, "b") == [0, 1, 1, 1, 0]


def test_a_count_beyond_what_is_exact_stays_there_until_the_roll(wire: Wire) -> None:
    wire.script("reserve", [W], NOW, "", "-", LENGTH, "a", MOST, "b", 5)
    assert wire.script("finish", [W], NOW, LENGTH, "a", 0) == [2, 1]
    assert wire.script("reserve", [W], NOW, "", MOST, LENGTH, "c", 0) == [0, 1, BEYOND, LENGTH, 0]
    assert wire.script("reserve", [W], NOW + LENGTH, "", MOST, LENGTH, "c", 1) == [1, 0, 1, LENGTH, 0]


# What is not as it should be


@pytest.mark.parametrize("kind", ["s", "w"])
def test_an_argument_that_is_no_number_is_an_error_before_any_write(wire: Wire, kind: str) -> None:
    key, cost = (G, ()) if kind == "s" else (W, (1,))
    rules: list[Words] = [[NOW, "", kind, "x", LENGTH], [NOW, "", kind, 5, "x"], [NOW, "", kind, 5, ""]]
    for bad in rules:
        assert isinstance(wire.script("admit", [key], *bad, "a", *cost), hiredis.ReplyError), bad
    if kind == "w":
        assert isinstance(wire.script("admit", [key], NOW, "", kind, 5, LENGTH, "a", "x"), hiredis.ReplyError)
        assert isinstance(wire.script("reserve", [key], NOW, "", 5, LENGTH, "a", ""), hiredis.ReplyError)
    assert wire.run("DBSIZE") == 0


def test_a_window_that_lost_a_field_counts_it_as_nothing(wire: Wire) -> None:
    for field in ("s", "n", ":a"):
        for name, args in (
            ("reserve", (NOW, "", 9, LENGTH, "b", 2)),
            ("settle", (NOW, LENGTH, "a", 2)),
            ("finish", (NOW, LENGTH, "a", 0)),
            ("peek", (NOW, LENGTH)),
        ):
            wire.run("UNLINK", W)
            wire.script("reserve", [W], NOW, "", 9, LENGTH, "a", 5)
            wire.run("HDEL", W, field)
            assert isinstance(wire.script(name, [W], *args), list), (field, name)
            used, reset = wire.script("peek", [W], NOW, LENGTH)
            assert used >= 0
            assert 0 <= reset <= LENGTH
            assert wire.script("reserve", [W], NOW, "", 9, LENGTH, "c", 9 - used)[:3] == [1, 0, 9]
            assert wire.run("PTTL", W) > 0


def test_a_key_of_the_wrong_type_is_left_alone(wire: Wire) -> None:
    wire.run("SET", "{t}:x", "mine")
    for name in SCRIPTS:
        if name == "reset":
            continue
        keys, args = call(name, 1) if name in BATCHED else ([G], [NOW, "s"])
        reply = wire.script(name, [*keys[:-1], "{t}:x"], *args)
        assert "WRONGTYPE" in str(reply), name
    assert wire.run("GET", "{t}:x") == b"mine"
    assert wire.run("DBSIZE") == 1
