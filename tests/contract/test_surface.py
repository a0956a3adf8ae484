"""The public names, and that both colours have the same."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import pyslot
from pyslot import AsyncLimiter, AsyncPermit, Limiter, Permit
from pyslot.loader import Call
from tests.contract.test_inputs import Recorder

PROMISED = {
    *("Limiter", "AsyncLimiter", "Slots", "Window", "Permit", "AsyncPermit", "Decision", "Status", "Outcome", "Local"),
    *("PyslotError", "LimitExceeded", "StoreUnavailable", "StoreError", "InvalidLimit"),
}
COLOURED = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}
ONLY_ASYNC = {"coalesce", "threaded"}
"""Options for how tasks share the way to the server; threads go by themselves."""


def test_the_promised_names_are_there() -> None:
    assert set(pyslot.__all__) >= PROMISED
    assert all(hasattr(pyslot, name) for name in pyslot.__all__)


def _names(kind: type) -> dict[str, Any]:
    own = {name: value for base in kind.__mro__[:-1] for name, value in vars(base).items()}
    return {
        COLOURED.get(name, name): value for name, value in own.items() if not name.startswith("_") or name in COLOURED
    }


def _shape(function: Any) -> list[tuple[str, str, object]]:  # noqa: ANN401 - any function
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.kind.name, each.default) for each in parameters if each.name not in ONLY_ASYNC]


@pytest.mark.parametrize(("blocking", "asynchronous"), [(Limiter, AsyncLimiter), (Permit, AsyncPermit)])
def test_both_colours_have_the_same_names_and_signatures(blocking: type, asynchronous: type) -> None:
    one, other = _names(blocking), _names(asynchronous)
    dunder = {"__enter__", "__exit__"}
    assert set(one) - dunder == set(other) - dunder
    assert dunder <= set(other)
    assert all(hasattr(blocking, name) for name in dunder)
    for name in set(one) & set(other):
        if inspect.isfunction(one[name]):
            assert _shape(one[name]) == _shape(other[name]), name
    assert _shape(blocking) == _shape(asynchronous)


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_options_have_the_promised_defaults(kind: type) -> None:
    parameters = inspect.signature(kind).parameters
    defaults = {
        "prefix": "pyslot",
        "hash_names": False,
        "group_by_slot": None,
        "deadline": 1.0,
        "on_outage": "raise",
        "on_lost": "rejoin",
    }
    assert {name: parameters[name].default for name in defaults} == defaults
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in defaults)


def test_what_sends_is_awaited_and_what_records_is_not() -> None:
    sends = {"try_acquire", "charge", "count", "peek", "reset", "aclose"}
    for name in sends:
        assert inspect.iscoroutinefunction(getattr(AsyncLimiter, name)), name
    for name in ("acquire", "handle", "adopt"):
        assert not inspect.iscoroutinefunction(getattr(AsyncLimiter, name)), name
    assert inspect.iscoroutinefunction(AsyncPermit.finish)
    for name in ("settle", "refund", "detach", "wrap"):
        assert not inspect.iscoroutinefunction(getattr(AsyncPermit, name)), name


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_making_a_limiter_sends_nothing(kind: Any) -> None:  # noqa: ANN401 - a limiter's class
    for scheme in ("redis", "valkey", "redis+cluster", "valkey+cluster"):
        kind(f"{scheme}://127.0.0.1:1")


def test_limits_are_values() -> None:
    """Equal where they say the same, in dicts, through pickle and copies."""
    import copy
    import dataclasses
    import pickle

    limits: list[Any] = [
        pyslot.Slots("a", 5, lease=2),
        pyslot.Window("a", "tokens", 5, per=2, tag="t"),
        pyslot.Slots("b", None),
    ]
    with Limiter("memory://") as limiter:
        limiter.peek(*limits)
    for limit in limits:
        for twin in (pickle.loads(pickle.dumps(limit)), copy.deepcopy(limit), dataclasses.replace(limit)):
            assert twin == limit
            assert hash(twin) == hash(limit)
            assert twin in {limit: 1}
    assert len(set(limits)) == 3
    assert (
        repr(limits[0])
        == "Slots(subject='a', limit=5, lease=2, max_hold=3600.0, tag=None, enforce=True, on_outage=None)"
    )


def test_a_store_of_ones_own_serves_as_well() -> None:
    class Yes(Recorder):
        def run(self, call: Call) -> list[int]:
            super().run(call)
            return [1, 0, 1, 60_000, 0]

    store = Yes()
    with Limiter(store) as limiter:
        assert limiter.try_acquire(pyslot.Slots("a", 1))
    assert [call.script.name for call in store.calls][:1] == ["acquire"]
