"""What can't be right is an error that names the value, before anything is sent."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from pyslot import AsyncLimiter, InvalidLimit, Limiter, Local, PyslotError, Slots, UsageError, Window
from pyslot.loader import Call
from tests.contract.facade import Facade

MOST = 2**53 - 1
NO_AMOUNT = [-1, 1.0, 0.5, True, "5", math.nan, math.inf, MOST + 1, b"5", [5]]
NO_NAME = ["", None, 5, b"a", ["a"]]
NO_TIME = [0, -1, 0.0004, math.nan, math.inf, -math.inf, "60", None, True, 1e300, timedelta(0), timedelta(days=-1)]
NO_BOOL = [0, 1, None, "yes"]
SLOTS, TPM = Slots("a", 5), Window("a", "tokens", 100)

Limits: list[tuple[str, Callable[[Any], object], list[Any]]] = [
    ("slots limit", lambda bad: Slots("a", bad), NO_AMOUNT),
    ("slots subject", lambda bad: Slots(bad, 5), NO_NAME),
    ("slots tag", lambda bad: Slots("a", 5, tag=bad), [bad for bad in NO_NAME if bad is not None]),
    ("slots lease", lambda bad: Slots("a", 5, lease=bad), NO_TIME),
    ("slots max_hold", lambda bad: Slots("a", 5, max_hold=bad), NO_TIME),
    ("slots enforce", lambda bad: Slots("a", 5, enforce=bad), NO_BOOL),
    ("window limit", lambda bad: Window("a", "tokens", bad), NO_AMOUNT),
    ("window subject", lambda bad: Window(bad, "tokens", 5), NO_NAME),
    ("window meter", lambda bad: Window("a", bad, 5), NO_NAME),
    ("window tag", lambda bad: Window("a", "tokens", 5, tag=bad), [bad for bad in NO_NAME if bad is not None]),
    ("window per", lambda bad: Window("a", "tokens", 5, per=bad), NO_TIME),
    ("window enforce", lambda bad: Window("a", "tokens", 5, enforce=bad), NO_BOOL),
    ("cost", TPM.cost, [*NO_AMOUNT, None]),
]


class Recorder:
    """A store that must not be asked."""

    cluster = False

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def run(self, call: Call) -> list[int]:
        self.calls.append(call)
        return []

    def close(self) -> None: ...


class AsyncRecorder:
    """The same for `AsyncLimiter`."""

    cluster = False

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def run(self, call: Call) -> list[int]:
        self.calls.append(call)
        return []

    async def aclose(self) -> None: ...


@pytest.mark.parametrize(
    ("make", "bad"),
    [pytest.param(make, bad, id=f"{name} {bad!r}") for name, make, values in Limits for bad in values],
)
def test_a_limit_that_cannot_be_is_refused_by_its_value(make: Callable[[Any], object], bad: object) -> None:
    with pytest.raises(InvalidLimit) as caught:
        make(bad)
    assert repr(bad) in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, PyslotError)


async def _block(limiter: Facade, **options: Any) -> None:  # noqa: ANN401 - that is the point
    async with limiter.acquire(SLOTS, **options):
        pytest.fail("nobody gets in here")


BAD_IDS = ["", "x" * 129, "é" * 65, 5, b"x", True]
BAD_WAITS = [-1, -0.1, math.nan, math.inf, True, "5"]
BAD_LIMITS: list[Any] = ["a", None, 5, [SLOTS], Slots]
USES: list[tuple[str, Callable[[Any, Any], Any], list[Any], type[Exception]]] = [
    ("id", lambda limiter, bad: limiter.try_acquire(SLOTS, id=bad), BAD_IDS, InvalidLimit),
    ("id of a block", lambda limiter, bad: _block(limiter, id=bad), BAD_IDS, InvalidLimit),
    ("wait", lambda limiter, bad: limiter.try_acquire(SLOTS, wait=bad), BAD_WAITS, InvalidLimit),
    ("wait of a block", lambda limiter, bad: _block(limiter, wait=bad), BAD_WAITS, InvalidLimit),
    ("on_error", lambda limiter, bad: _block(limiter, on_error=bad), ["raise", None, True], UsageError),
    ("limit", lambda limiter, bad: limiter.try_acquire(SLOTS, bad), BAD_LIMITS, InvalidLimit),
    ("limit to charge", lambda limiter, bad: limiter.charge(bad), [*BAD_LIMITS, SLOTS, TPM], InvalidLimit),
    ("limit to peek", lambda limiter, bad: limiter.peek(bad), BAD_LIMITS, InvalidLimit),
    ("limit to count", lambda limiter, bad: limiter.count(bad), [*BAD_LIMITS, TPM], InvalidLimit),
    ("limit to reset", lambda limiter, bad: limiter.reset(bad), BAD_LIMITS, InvalidLimit),
    ("window without its cost", lambda limiter, bad: limiter.try_acquire(bad), [TPM], InvalidLimit),
]


@pytest.mark.parametrize("blocking", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("use", "bad", "error"),
    [pytest.param(use, bad, error, id=f"{name} {bad!r}"[:60]) for name, use, values, error in USES for bad in values],
)
async def test_a_use_that_cannot_be_sends_nothing(
    blocking: bool, use: Callable[[Any, Any], Any], bad: object, error: type[Exception]
) -> None:
    store: Recorder | AsyncRecorder = Recorder() if blocking else AsyncRecorder()
    limiter = Facade((Limiter if blocking else AsyncLimiter)(store))
    with pytest.raises(error) as caught:
        await use(limiter, bad)
    assert repr(bad) in str(caught.value)
    assert store.calls == []
    await limiter.close()


@pytest.mark.parametrize("blocking", [True, False], ids=["sync", "async"])
async def test_an_id_that_cannot_be_makes_no_handle(blocking: bool) -> None:
    limiter = Facade((Limiter if blocking else AsyncLimiter)("memory://"))
    for bad in BAD_IDS:
        with pytest.raises(InvalidLimit, match="id must be"):
            limiter.handle(bad, SLOTS)  # type: ignore[arg-type]
    assert limiter.handle("x" * 128, SLOTS).id == "x" * 128
    assert limiter.handle("é" * 64, SLOTS).id == "é" * 64
    await limiter.close()


OPTIONS: list[tuple[str, list[Any]]] = [
    ("prefix", ["", "a b", "a{b", "a}", "ä", "a\n", "a/b", None, 5]),
    ("deadline", [0, -1, math.nan, math.inf, "1", None, True]),
    ("on_outage", ["fail", "", None, True, 5]),
    ("on_lost", ["ignore", "", None, True]),
]


@pytest.mark.parametrize("limiter", [Limiter, AsyncLimiter])
@pytest.mark.parametrize(
    ("option", "bad"),
    [pytest.param(option, bad, id=f"{option} {bad!r}") for option, values in OPTIONS for bad in values],
)
def test_an_option_that_cannot_be_is_refused_by_its_value(limiter: Any, option: str, bad: object) -> None:  # noqa: ANN401
    with pytest.raises(UsageError) as caught:
        limiter("memory://", **{option: bad})
    assert repr(bad) in str(caught.value)


@pytest.mark.parametrize("bad", [0, -1, 1.5, math.nan, True, "1", None])
def test_a_share_that_cannot_be_is_refused_by_its_value(bad: Any) -> None:  # noqa: ANN401
    with pytest.raises(UsageError) as caught:
        Local(share=bad)
    assert repr(bad) in str(caught.value)


@pytest.mark.parametrize("limiter", [Limiter, AsyncLimiter])
@pytest.mark.parametrize("url", ["http://localhost", "redi://localhost", "localhost", "", "://", "redis:/localhost"])
def test_a_scheme_that_is_unknown_is_told_with_those_that_are_known(limiter: Any, url: str) -> None:  # noqa: ANN401
    with pytest.raises(UsageError, match=r"unknown store URL scheme.*redis://.*memory://"):
        limiter(url)


@pytest.mark.parametrize("limiter", [Limiter, AsyncLimiter])
@pytest.mark.parametrize(
    "target", [None, 5, b"redis://localhost", {"host": "localhost"}, object()], ids=lambda target: type(target).__name__
)
def test_what_is_no_store_is_told_by_its_type(limiter: Any, target: object) -> None:  # noqa: ANN401
    with pytest.raises(UsageError, match=type(target).__name__):
        limiter(target)


@pytest.mark.parametrize("limiter", [Limiter, AsyncLimiter])
@pytest.mark.parametrize("library", ["redis", "valkey"])
def test_a_missing_extra_is_named(limiter: Any, library: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    monkeypatch.delitem(sys.modules, f"pyslot.adapters.{library}", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError, match=rf"'{library}.*pip install 'pyslot-limits\[{library}\]'"):
        limiter(f"{library}://localhost")


async def test_a_client_of_the_other_colour_is_sent_to_the_other_limiter() -> None:
    clients: list[tuple[Any, Any]] = [
        (redis.Redis(), redis.asyncio.Redis()),
        (valkey.Valkey(), valkey.asyncio.Valkey()),
    ]
    for blocking, asynchronous in clients:
        with pytest.raises(UsageError, match="pass that to AsyncLimiter"):
            Limiter(asynchronous)
        with pytest.raises(UsageError, match="pass that to Limiter"):
            AsyncLimiter(blocking)
        blocking.close()
        await asynchronous.aclose()


def test_a_store_of_the_other_colour_is_refused() -> None:
    with pytest.raises(UsageError, match="AsyncRecorder"):
        Limiter(AsyncRecorder())
    with pytest.raises(UsageError, match="Recorder"):
        AsyncLimiter(Recorder())
