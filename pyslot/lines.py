"""Who waits for slots in this limiter: for each gauge a line, in order of arrival.

Only the first in a line asks the server. Whoever comes later stands behind, a caller too that has just given a slot
back and wants the next: it would nearly always find its own slot free, and those who ask now and then never would.

A slot given back here is news to this limiter alone. Its first in line hears of it at once, so that the slot does not
lie idle; but now and then it is left to whoever asks next, or other processes might wait for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import random
from threading import Lock
from typing import NamedTuple, Protocol

LEFT = 0.25
"""The part of slots given back that is left to whoever asks next. Simulated with 4 processes of 15 callers for 5 slots:
0 shuts processes out for long, 1 lets slots lie idle for a tenth of the time; with a quarter it is 3 %."""


class Bell(Protocol):
    """What wakes a sleeper: a `threading.Event` or an `asyncio.Event`."""

    def set(self) -> None: ...

    def clear(self) -> None: ...


class Listen(NamedTuple):
    """A flow's wish to be resumed when a bell has rung, or after so many seconds."""

    seconds: float
    bell: Bell


class Place:
    """One caller's place in a line."""

    __slots__ = ("_lines", "bell", "key", "turn")

    def __init__(self, lines: Lines, key: bytes, bell: Bell) -> None:
        self._lines = lines
        self.key = key
        self.bell = bell
        """Rings when it is time to ask. It may ring for nothing."""
        self.turn = False
        """True once this caller may ask the server."""

    def leave(self) -> None:
        """Whoever is first then has its turn."""
        self._lines.leave(self)

    def disperse(self) -> None:
        """All in this line have their turn: where the server does not answer, nobody shall learn that late."""
        self._lines.disperse(self.key)


class Lines:
    """The lines of one limiter. Safe for threads; nothing here waits."""

    def __init__(self, make_bell: Callable[[], Bell]) -> None:
        self._make_bell = make_bell
        self._lines: dict[bytes, deque[Place]] = {}
        self._lock = Lock()

    def forms(self, key: bytes) -> bool:
        """True where somebody waits for a gauge."""
        return key in self._lines

    def join(self, key: bytes) -> Place:
        """Stand at the end."""
        place = Place(self, key, self._make_bell())
        with self._lock:
            line = self._lines.setdefault(key, deque())
            line.append(place)
            place.turn = line[0] is place
        return place

    def leave(self, place: Place) -> None:
        with self._lock:
            line = self._lines[place.key]
            line.remove(place)
            if line:
                _call(line[0])
            else:
                del self._lines[place.key]

    def disperse(self, key: bytes) -> None:
        with self._lock:
            for place in self._lines[key]:
                _call(place)

    def freed(self, key: bytes) -> None:
        """A slot was given back."""
        if key in self._lines and random() >= LEFT:  # noqa: S311  # no secret
            with self._lock:
                if line := self._lines.get(key):
                    line[0].bell.set()


def _call(place: Place) -> None:
    if not place.turn:
        place.turn = True
        place.bell.set()
