"""Script calls spelled out, as a program without this library would send them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from pyslot.loader import Call, load

SCRIPTS = load()
GAUGE, OTHER_GAUGE = b"pyslot:v1:{a}:s", b"pyslot:v1:{a}:s:b"
WINDOW, OTHER_WINDOW = b"pyslot:v1:{a}:w:requests:60000", b"pyslot:v1:{a}:w:tokens:60000"


class G(NamedTuple):
    """A gauge and its rule."""

    limit: object = 2
    lease: int = 60_000
    key: bytes = GAUGE

    def column(self) -> bool:
        return False


class W(NamedTuple):
    """A window and its rule."""

    limit: object = 100
    per: int = 60_000
    key: bytes = WINDOW

    def column(self) -> bool:
        return True


Rule: TypeAlias = G | W
Permit: TypeAlias = str | Sequence[object]
"""An id, or an id followed by its figures."""


def step(call: Call) -> str:
    """What a call is for: for a single gauge `acquire` and `release` do what `admit` and `finish` do."""
    return {"acquire": "admit", "release": "finish"}.get(call.script.name, call.script.name)


def _words(*items: object) -> tuple[bytes, ...]:
    return tuple(str(item).encode() for item in items)


def _permits(permits: Sequence[Permit]) -> tuple[bytes, ...]:
    return _words(*(word for permit in permits for word in ([permit] if isinstance(permit, str) else permit)))


def _call(name: str, rules: Sequence[Rule], head: Sequence[object], permits: Sequence[Permit] = ()) -> Call:
    return Call(SCRIPTS[name], tuple(rule.key for rule in rules), _words(*head), _permits(permits))


def acquire(gauges: Sequence[G], *ids: str, mode: str = "") -> Call:
    return _call("acquire", gauges, ["", mode, *(word for g in gauges for word in (g.limit, g.lease))], ids)


def reserve(windows: Sequence[W], *permits: Permit, mode: str = "") -> Call:
    return _call("reserve", windows, ["", mode, *(word for w in windows for word in (w.limit, w.per))], permits)


def admit(rules: Sequence[Rule], *permits: Permit, mode: str = "") -> Call:
    return _call("admit", rules, ["", mode, *(word for r in rules for word in ("sw"[r.column()], r[0], r[1]))], permits)


def _spans(rules: Sequence[Rule]) -> list[object]:
    return ["", *(rule.per if isinstance(rule, W) else "s" for rule in rules)]


def release(gauges: Sequence[G], *ids: str) -> Call:
    return _call("release", gauges, [""], ids)


def renew(gauges: Sequence[G], *ids: str) -> Call:
    return _call("renew", gauges, ["", *(g.lease for g in gauges)], ids)


def settle(windows: Sequence[W], *permits: Permit) -> Call:
    return _call("settle", windows, _spans(windows), permits)


def finish(rules: Sequence[Rule], *permits: Permit) -> Call:
    return _call("finish", rules, _spans(rules), permits)


def count(*gauges: G) -> Call:
    return _call("count", gauges, [""])


def peek(*rules: Rule) -> Call:
    return _call("peek", rules, _spans(rules))


def reset(*rules: Rule) -> Call:
    return _call("reset", rules, [])
