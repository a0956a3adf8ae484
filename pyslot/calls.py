"""Limits to calls, and replies to answers. Pure: nothing here sends, waits or looks at a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from pyslot.errors import InvalidLimit
from pyslot.keys import Naming, Wire
from pyslot.kinds import Asked, Charge, Slots, Window
from pyslot.loader import Call, Script, load
from pyslot.parts import Part

SCRIPTS = load()
ADMIT, FINISH, RESERVE = SCRIPTS["admit"], SCRIPTS["finish"], SCRIPTS["reserve"]
ACQUIRE, RELEASE, RENEW = SCRIPTS["acquire"], SCRIPTS["release"], SCRIPTS["renew"]
COUNT, PEEK, RESET = SCRIPTS["count"], SCRIPTS["peek"], SCRIPTS["reset"]

REFUSED, GRANTED, REPEATED = 0, 1, 2
"""Status of a permit in an admission's reply."""
TAKES, FULL, NEVER, OBSERVED, HELD = range(5)
"""Verdict of one limit on one permit."""
FIGURES = 4
"""Numbers per limit in an admission's record: verdict, used, milliseconds to reset, leases that ended unreleased."""

TAKE, DRY, REJOIN = b"", b"dry", b"rejoin"
"""Modes of admission."""
_NOW = (b"",)
"""The head of a call that says no more than that the server's clock decides."""

Parts: TypeAlias = tuple[Part, ...]

# As `Call._make`, at half the price: no function in Python stands between.
_call: Callable[[tuple[Script, tuple[bytes, ...], tuple[bytes, ...], tuple[bytes, ...]]], Call]
_call = partial(tuple.__new__, Call)


class Answer(NamedTuple):
    """What one group's admission replied: for a single permit a status, then `FIGURES` numbers for each part."""

    parts: Parts
    record: Sequence[int]

    @property
    def status(self) -> int:
        return self.record[0]

    def figures(self) -> list[tuple[Part, int, int, int]]:
        """For each part: verdict, used, milliseconds to reset."""
        record = self.record
        return [
            (part, record[at], record[at + 1], record[at + 2])
            for part, at in zip(self.parts, range(1, len(record), FIGURES), strict=True)
        ]


def parts_of(asked: Iterable[Asked], naming: Naming, *, charged: bool = True) -> Parts:
    """What callers ask for as parts, each limit once.

    With `charged`, a window must say its cost, unless it counts requests: those cost 1.
    """
    if type(asked) is tuple and len(asked) == 1 and type(asked[0]) is Slots:
        return (asked[0].part(naming),)
    parts: dict[bytes, Part] = {}
    for item in asked:
        kind = type(item)
        if kind is not Slots and kind is not Charge:
            if type(item) is not Window:
                raise InvalidLimit(f"a limit must be Slots, Window or window.cost(units), not {item!r}")
            if charged and item.meter != "requests":
                raise InvalidLimit(f"how many {item.meter}? Pass window.cost(units) for {item!r}")
        part = item.part(naming)
        same = parts.setdefault(part.wire.key, part)
        if same is not part and same != part:
            raise InvalidLimit(f"two different rules for one key in one call: {same.limit!r} and {item!r}")
    return tuple(parts.values())


def grouped(parts: Parts) -> list[Parts]:
    """Parts by hash slot, in ascending order of hash slots: the order in which every caller must charge them."""
    groups: dict[int, list[Part]] = {}
    for part in parts:
        groups.setdefault(part.wire.hash_slot, []).append(part)
    return [tuple(groups[hash_slot]) for hash_slot in sorted(groups)]


def admit(parts: Parts, id: bytes, mode: bytes = TAKE) -> Call:
    """Start one permit in all parts or in none."""
    if len(parts) == 1 and mode is TAKE:
        _, _, wire, figure = parts[0]
        if figure is None:
            return _call((ACQUIRE, wire.keys, wire.start, (id,)))
        return _call((ADMIT, wire.keys, wire.start, (id, figure)))
    keys, rules, permit = [], [b"", mode], [id]
    for _, _, wire, figure in parts:
        keys.append(wire.key)
        rules += wire.rule
        if figure is not None:
            permit.append(figure)
    return _call((ADMIT, tuple(keys), tuple(rules), tuple(permit)))


def finish(parts: Parts, id: bytes, figures: Mapping[bytes, int]) -> Call:
    """End one permit in all parts; `figures` are the units really used, by the window's key."""
    if len(parts) == 1 and parts[0].figure is None:
        wire = parts[0].wire
        return _call((RELEASE, wire.keys, _NOW, (id,)))
    keys, spans, permit = [], [b""], [id]
    for _, _, wire, figure in parts:
        keys.append(wire.key)
        spans.append(wire.span)
        if figure is not None:
            units = figures.get(wire.key)
            permit.append(b"-" if units is None else b"%d" % units)
    return _call((FINISH, tuple(keys), tuple(spans), tuple(permit)))


def undo(parts: Parts, id: bytes) -> Call:
    """End one permit as if it had never been: slots given back, charges taken back."""
    return finish(parts, id, {part.wire.key: 0 for part in parts})


def taken(answer: Answer) -> Parts:
    """The parts an admission took just now; what the permit held before is not this call's to undo."""
    verdicts = answer.record[1::FIGURES]
    return tuple(part for part, verdict in zip(answer.parts, verdicts, strict=True) if verdict != HELD)


def renew(wire: Wire, lease_ms: int, ids: Sequence[bytes]) -> Call:
    """Let slots of one gauge live on for a lease; the reply has two numbers for each id, the first 2 or 0."""
    return Call(RENEW, (wire.key,), (b"", b"%d" % lease_ms), tuple(ids))


def rejoin(wire: Wire, lease_ms: int, ids: Sequence[bytes]) -> Call:
    """Register lost slots anew, even above the limit."""
    return Call(ACQUIRE, (wire.key,), (b"", REJOIN, wire.rule[1], b"%d" % lease_ms), tuple(ids))


def count(parts: Parts) -> Call:
    return Call(COUNT, tuple(part.wire.key for part in parts), (b"",))


def peek(parts: Parts) -> Call:
    return Call(PEEK, tuple(part.wire.key for part in parts), (b"", *(part.wire.span for part in parts)))


def probe(key: bytes) -> Call:
    """A call that changes nothing where `key` lives, and that only a server which takes writes will answer."""
    return Call(RESET, (key[: key.index(b"}") + 1] + b":probe",), ())


def reset(parts: Parts) -> Call:
    return Call(RESET, tuple(part.wire.key for part in parts), ())
