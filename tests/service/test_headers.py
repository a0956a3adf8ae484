"""What the headers say, for each kind of refusal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pyslot import Decision, Limiter, Permit, Slots, Window
from pyslot.headers import headers, policies, retry_headers
from pyslot.testing import World

KEY = "key:sk-secret"
SLOTS = Slots(KEY, 2)
RPM = Window(KEY, "requests", 3, per=60)
RPD = Window(KEY, "requests", 500, per=86_400)
TPM = Window("team:a", "tokens", 1_000, per=60)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def limiter(world: World) -> Limiter:
    return world.limiter()


def taken(decision: Decision[Permit]) -> Permit:
    return decision.require()


def test_a_grant_says_where_each_limit_stands(limiter: Limiter) -> None:
    told = limiter.try_acquire(SLOTS, RPM, TPM.cost(100)).headers()
    assert told == {
        "RateLimit-Policy": (
            '"key-slots";q=2;qu="concurrent-requests", "key-requests";q=3;w=60, "team-tokens";q=1000;qu="tokens";w=60'
        ),
        "RateLimit": '"key-slots";r=1, "key-requests";r=2;t=60, "team-tokens";r=900;t=60',
        "x-ratelimit-limit-requests": "3",
        "x-ratelimit-remaining-requests": "2",
        "x-ratelimit-reset-requests": "1m0s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "900",
        "x-ratelimit-reset-tokens": "1m0s",
    }


def test_a_full_window_says_when_it_rolls_rounded_up(world: World, limiter: Limiter) -> None:
    limiter.charge(TPM.cost(950))
    world.advance(19.25)
    told = limiter.charge(TPM.cost(51)).headers()
    assert (told["Retry-After"], told["retry-after-ms"]) == ("41", "40750")
    assert told["RateLimit"] == '"team-tokens";r=50;t=41'
    assert told["x-ratelimit-reset-tokens"] == "40.75s"
    assert "x-should-retry" not in told


def test_a_window_that_rolls_later_than_clients_wait_says_so_and_stops_retries(limiter: Limiter) -> None:
    day = Window(KEY, "requests", 1, per=86_400)
    limiter.charge(day)
    told = limiter.charge(day).headers()
    assert told["Retry-After"] == "86400"
    assert told["x-should-retry"] == "false"
    assert "retry-after-ms" not in told, "clients that disregard a long Retry-After may heed it"


def test_what_can_never_be_granted_names_no_time_and_stops_retries(limiter: Limiter) -> None:
    told = limiter.charge(TPM.cost(1_001)).headers()
    assert told["x-should-retry"] == "false"
    assert {"Retry-After", "retry-after-ms"}.isdisjoint(told)


def test_full_slots_say_milliseconds_and_never_zero_seconds(world: World, limiter: Limiter) -> None:
    for _ in range(20):
        permits = [taken(limiter.try_acquire(SLOTS)) for _ in range(2)]
        world.advance(0.1)
        for permit in permits:
            permit.finish()
    held = [taken(limiter.try_acquire(SLOTS)) for _ in range(2)]
    told = limiter.try_acquire(SLOTS).headers()
    assert told["Retry-After"] == "1"
    assert 1 <= int(told["retry-after-ms"]) <= 200
    assert "t=" not in told["RateLimit"], "the end of a lease says nothing of when a slot is free"
    assert held


def test_an_outage_that_closes_says_a_second_and_no_figures(world: World) -> None:
    limiter = world.limiter(on_outage="closed")
    with world.outage():
        told = limiter.try_acquire(SLOTS, RPM).headers()
    assert told == {"Retry-After": "1", "retry-after-ms": "1000"}


def test_an_outage_that_opens_makes_up_no_figures(world: World) -> None:
    limiter = world.limiter(on_outage="open")
    with world.outage():
        assert limiter.try_acquire(SLOTS, RPM).headers() == {}


def test_limits_that_only_observe_or_do_not_exist_are_not_told(limiter: Limiter) -> None:
    watched = Window("org:x", "requests", 1, enforce=False)
    assert limiter.charge(watched, Window("org:y", "requests", None)).headers() == {}


def test_the_tightest_of_several_windows_is_what_openai_clients_read(limiter: Limiter) -> None:
    told = limiter.charge(RPD, RPM).headers("openai")
    assert told["x-ratelimit-limit-requests"] == "3"
    assert set(told) == {f"x-ratelimit-{what}-requests" for what in ("limit", "remaining", "reset")}


def test_epoch_is_a_style_that_must_be_asked_for(limiter: Limiter) -> None:
    decision = limiter.charge(RPD, RPM)
    assert headers(True, 0, decision.statuses, ("epoch",), lambda: 1_000_000.5) == {
        "X-RateLimit-Limit": "3",
        "X-RateLimit-Remaining": "2",
        "X-RateLimit-Reset": "1000061",
    }
    assert not [name for name in decision.headers() if name.startswith("X-")]
    with pytest.raises(ValueError, match="'ietf', 'openai' or 'epoch'"):
        decision.headers("github")  # type: ignore[arg-type]


def test_names_are_distinct_and_tell_nobody_by_name(limiter: Limiter) -> None:
    limits = (RPM, RPD, Window("key:sk-other", "requests", 9), Slots("sk-bare-secret", 1), Window('t"\\\n:x', "é", 1))
    names = [name for name, _ in policies(limiter.peek(*limits))]
    assert names == ["key-requests-60", "key-requests-86400", "key-requests-60-2", "slots", "t___-_"]


def test_every_figure_fits_a_structured_field(limiter: Limiter) -> None:
    told = limiter.charge(Window("a", "requests", 2**53 - 1, per=0.25)).headers()
    assert told["RateLimit-Policy"] == '"requests";q=999999999999999;w=1'
    for value in (told["RateLimit-Policy"], told["RateLimit"]):
        assert all(len(digits) <= 15 for digits in re.findall(r"\d+", value))


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.0004, {"Retry-After": "1", "retry-after-ms": "1"}),
        (0.0, {"Retry-After": "1", "retry-after-ms": "1000"}),
        (59.0001, {"Retry-After": "60", "retry-after-ms": "59001"}),
        (60.0, {"Retry-After": "60", "retry-after-ms": "60000"}),
        (60.5, {"Retry-After": "61", "x-should-retry": "false"}),
        (None, {"x-should-retry": "false"}),
    ],
)
def test_times_are_rounded_up_and_never_zero(seconds: float | None, told: dict[str, str]) -> None:
    assert retry_headers(seconds) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.0301, "31ms"), (8.64, "8.64s"), (59.9999, "1m0s"), (360.0, "6m0s"), (3_601.5, "1h0m1.5s")]
)
def test_openai_times_are_written_as_go_writes_them(world: World, seconds: float, told: str) -> None:
    limiter = world.limiter()
    window = Window("a", "requests", 1, per=7_200)
    limiter.charge(window)
    (status,) = limiter.peek(window)
    status = replace(status, reset_after=seconds)
    assert headers(True, 0, [status], ("openai",))["x-ratelimit-reset-requests"] == told


def test_explain_says_what_to_do(world: World, limiter: Limiter) -> None:
    held = [limiter.try_acquire(SLOTS, id=id) for id in "aba"]
    assert held[2].explain() == "granted before"
    assert limiter.try_acquire(RPM).explain() == "granted"
    assert re.fullmatch(
        r"refused by slots of key:sk-secret \(2 of 2 in use, 1 asked for\); try again in 0\.\d+ s",
        limiter.try_acquire(SLOTS).explain(),
    )
    assert limiter.charge(TPM.cost(1_001)).explain() == (
        "refused by tokens of team:a per 60 s (1001 asked for); it never has room for more than 1000: ask for less"
    )
    assert limiter.try_acquire(Slots("x", 0)).explain() == "refused by slots of x (1 asked for); it admits nothing"
    day = Window("u", "requests", 1, per=86_400)
    limiter.charge(day)
    world.advance(86_400 - 7_000)
    assert limiter.charge(day).explain().endswith("(1 of 1 in use, 1 asked for); try again in 117 min")
    closed = world.limiter(on_outage="closed")
    with world.outage():
        assert closed.try_acquire(SLOTS).explain() == "refused: the server that counts can't be reached"
    assert held
