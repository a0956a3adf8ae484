"""The limits that a server holds: found by SCAN in steps, looked at by the script `peek`."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyslot.adapters.resp_tools import Node
from pyslot.calls import SCRIPTS
from pyslot.errors import StoreError
from pyslot.keys import Named, hash_slot, parse
from pyslot.loader import LAYOUT, Call

STEP = 500
"""Keys that one SCAN looks at: well under a millisecond of the server's time."""
PAUSE = 0.002
"""Seconds between two of them, in which the server serves others."""
_KEYS = 100
"""Keys that one `peek` looks at."""
_CALLS = 100
"""Of these in one round trip."""
_PASSED_OVER = ("WRONGTYPE", "MOVED", "ASK", "TRYAGAIN")
"""No limit after all, or moving to another server, where it is found the next time."""


class Row(NamedTuple):
    """One limit as it stands."""

    key: bytes
    named: Named
    used: int
    """Slots or units."""
    reset_ms: int
    """Until the first lease ends, or the window rolls."""


@dataclass(slots=True)
class Scan:
    """One walk over the keys of a server, in steps."""

    node: Node
    prefix: str
    step: int = STEP
    seen: int = 0
    """Keys walked over so far, about: those of others as well."""
    total: int = 0
    """Keys on the server when it began."""
    done: bool = False
    _cursor: int = field(default=0, init=False)

    def next(self) -> list[bytes]:
        """The next step's keys under the prefix."""
        if not self.total:
            self.total = int(self.node.ask("dbsize"))
        match = f"{self.prefix}:{LAYOUT}:{{*"
        self._cursor, keys = self.node.ask("scan", self._cursor, match=match, count=self.step)
        self.seen += self.step
        self.done = self._cursor == 0
        return [key if isinstance(key, bytes) else key.encode("utf-8", "surrogateescape") for key in keys]


def walk(nodes: Iterable[Node], prefix: str) -> Iterator[tuple[Scan, list[bytes]]]:
    """All keys under a prefix, a step at a time, one server after another."""
    for node in nodes:
        scan = Scan(node, prefix)
        while not scan.done:
            yield scan, scan.next()
            time.sleep(PAUSE)


def look(node: Node, keys: Iterable[bytes], prefix: str, *, cluster: bool) -> list[Row]:
    """How the limits of these keys, all on one server, stand; what is no limit's is left out."""
    limits = {key: named for key in keys if (named := parse(key, prefix))}
    groups: dict[int, list[bytes]] = defaultdict(list)
    for key in limits:
        groups[hash_slot(key) if cluster else 0].append(key)
    return _look(node, limits, [part for same in groups.values() for part in _parts(same)])


def _look(node: Node, limits: dict[bytes, Named], groups: Sequence[Sequence[bytes]]) -> list[Row]:
    rows, again = [], []
    for at in range(0, len(groups), _CALLS):
        calls = [_peek(group, limits) for group in groups[at : at + _CALLS]]
        for call, reply in zip(calls, node.run_many(calls), strict=True):
            if not isinstance(reply, StoreError):
                rows += [Row(key, limits[key], *reply[2 * i : 2 * i + 2]) for i, key in enumerate(call.keys)]
            elif len(call.keys) > 1:
                again += [[key] for key in call.keys]  # one of them is to blame
            elif not any(word in str(reply) for word in _PASSED_OVER):
                raise reply
    return rows + (_look(node, limits, again) if again else [])


def _peek(keys: Sequence[bytes], limits: dict[bytes, Named]) -> Call:
    spans = (b"%d" % per if (per := limits[key].per_ms) else b"s" for key in keys)
    return Call(SCRIPTS["peek"], tuple(keys), (b"", *spans))


def _parts(keys: list[bytes]) -> list[list[bytes]]:
    return [keys[at : at + _KEYS] for at in range(0, len(keys), _KEYS)]
