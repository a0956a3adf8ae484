"""The scripts in plain Python: the reference that servers are compared with, and what the memory store runs.

Same keys, same arguments, same replies, same lifetimes as scripts/v1; the clock is injected and counts milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from math import inf
from typing import TypeVar

HOUR, MINUTE = 3_600_000, 60_000
BEYOND = 2**53
"""A count above 2^53-1 is no longer exact in Lua: it stays at this until the window rolls."""
BATCH = 1000
PRUNE = 1000
TAKES, FULL, NEVER, OBSERVED, HELD = range(5)
"""Verdicts of admission, one per permit and key."""

Args = Sequence[bytes]
Kind = TypeVar("Kind", "Gauge", "Window")


class WrongArguments(Exception):
    """The arguments don't fit the script: where a server would answer with an error."""


class Gauge:
    """Slots: permit id -> when its lease ends, in order of the ends."""

    __slots__ = ("ends", "expires", "held")

    def __init__(self) -> None:
        self.held: dict[bytes, int] = {}
        self.ends: list[tuple[int, bytes]] = []
        self.expires = 0

    def put(self, id: bytes, end: int) -> None:
        self.remove(id)
        self.held[id] = end
        insort(self.ends, (end, id))

    def remove(self, id: bytes) -> None:
        end = self.held.pop(id, None)
        if end is not None:
            del self.ends[bisect_left(self.ends, (end, id))]

    def lapsed(self, now: int) -> int:
        """How many leases have ended by `now`."""
        return bisect_right(self.ends, now, key=lambda slot: slot[0]) if self.ends and self.ends[0][0] <= now else 0


class Window:
    """Units: when the window started, what it has been charged, and the charge of each open permit."""

    __slots__ = ("charges", "expires", "start", "used")

    def __init__(self, start: int) -> None:
        self.start = start
        self.used = 0
        self.charges: dict[bytes, int] = {}
        self.expires = 0


class _State:
    """What one call knows of one key."""

    __slots__ = ("key", "limit", "model", "moved", "new", "observed", "reset", "span", "used")

    limit: float
    observed: bool

    def __init__(self, model: Model, key: bytes, span: int) -> None:
        self.model, self.key, self.span = model, key, span
        self.new: dict[bytes, int] = {}
        self.used = self.reset = 0
        self.moved = False

    def rule(self, limit: bytes) -> None:
        self.observed = limit[:1] == b"~"
        self.limit = inf if limit in (b"-", b"~-") else int(limit[1:] if self.observed else limit)


class _Slots(_State):
    """One gauge within one call."""

    __slots__ = ("gauge", "hour")

    def __init__(self, model: Model, key: bytes, span: int) -> None:
        super().__init__(model, key, span)
        self.gauge = model.get(key, Gauge)
        self.hour: int | None = None
        if self.gauge:
            ends, lapsed = self.gauge.ends, self.gauge.lapsed(model.now)
            self.hour = ends[0][0] // HOUR
            self.used = len(ends) - lapsed
            self.reset = ends[lapsed][0] - model.now if self.used else 0

    def holds(self, id: bytes) -> bool:
        return id in self.new or (self.gauge is not None and self.gauge.held.get(id, 0) > self.model.now)

    def write(self) -> int:
        model = self.model
        gauge = self.gauge
        if not gauge:
            gauge = model.data[self.key] = Gauge()
        for id in self.new:
            gauge.put(id, model.now + self.span)
        dropped = min(gauge.lapsed(model.now), PRUNE)
        for _, id in gauge.ends[:dropped]:
            del gauge.held[id]
        del gauge.ends[:dropped]
        # Every slot sees to it that the key outlives the hour in which its lease ends by an hour.
        hour = (model.now + self.span) // HOUR
        if self.hour != hour and gauge.expires < model.time + (hour + 2) * HOUR - model.now + model.spare:
            gauge.expires = model.time + self.span + 2 * HOUR + model.spare
        return dropped


class _Window(_State):
    """One window within one call."""

    __slots__ = ("live", "window")

    def __init__(self, model: Model, key: bytes, span: int) -> None:
        super().__init__(model, key, span)
        self.window = model.get(key, Window)
        self.live = False
        if self.window and model.now < self.window.start + span:
            self.live, self.used, self.moved = True, self.window.used, self.window.start > model.now
            self.reset = min(self.window.start + span - model.now, span)

    def holds(self, id: bytes) -> bool:
        return id in self.new or (self.live and self.window is not None and id in self.window.charges)

    def write(self) -> int:
        model = self.model
        if not self.live or not self.window:
            self.window = model.data[self.key] = Window(model.now)
            self.window.expires = model.time + self.span + MINUTE + model.spare
        if self.moved:
            self.window.start = model.now
        self.window.used = self.used
        self.window.charges.update(self.new)
        return 0


_KINDS: dict[bytes, type[_Slots | _Window]] = {b"s": _Slots, b"w": _Window}


class Model:
    """Every script of layout 1 over data in memory.

    `clock` returns milliseconds; it decides, like a server's, unless a call brings its own time. Not safe for threads.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.data: dict[bytes, Gauge | Window] = {}
        self.time = self.now = self.spare = 0
        self._calls = 0

    def run(self, script: str, keys: Sequence[bytes], args: Args) -> list[int]:
        """Run one script by name, as EVALSHA would."""
        self.time = self.clock()
        self._calls += 1
        if self._calls > len(self.data) + 100:
            self._sweep()
        if script == "reset":
            gone = [self.data.pop(key) for key in set(keys) if key in self.data]
            return [sum(value.expires > self.time for value in gone)]
        self.now, self.spare = (int(args[0]), HOUR) if args[0] else (self.time, 0)
        return _SCRIPTS[script](self, keys, args)

    def get(self, key: bytes, kind: type[Kind]) -> Kind | None:
        """What a key holds, unless its time to live has passed."""
        value = self.data.get(key)
        if value is None:
            return None
        if value.expires <= self.time:
            del self.data[key]
            return None
        if not isinstance(value, kind):
            raise WrongArguments(f"WRONGTYPE {key!r} holds a {type(value).__name__.lower()}")
        return value

    def _sweep(self) -> None:
        # Keys that nobody asks for again must go too; once per as many calls as there are keys costs next to nothing.
        self._calls = 0
        for key in [key for key, value in self.data.items() if value.expires <= self.time]:
            del self.data[key]

    # Admission

    def _acquire(self, keys: Sequence[bytes], args: Args) -> list[int]:
        if len(args) == 5 and len(keys) == 1 and not args[1] and (reply := self._take(keys[0], *args[2:])):
            return reply
        states = [_Slots(self, key, int(args[3 + 2 * k])) for k, key in enumerate(keys)]
        return self._decide(states, args[1], args[2 : 2 + 2 * len(keys) : 2], args[2 + 2 * len(keys) :])

    def _reserve(self, keys: Sequence[bytes], args: Args) -> list[int]:
        states = [_Window(self, key, int(args[3 + 2 * k])) for k, key in enumerate(keys)]
        return self._decide(states, args[1], args[2 : 2 + 2 * len(keys) : 2], args[2 + 2 * len(keys) :])

    def _admit(self, keys: Sequence[bytes], args: Args) -> list[int]:
        states = [_KINDS[args[2 + 3 * k]](self, key, int(args[4 + 3 * k])) for k, key in enumerate(keys)]
        return self._decide(states, args[1], args[3 : 3 + 3 * len(keys) : 3], args[2 + 3 * len(keys) :])

    def _take(self, key: bytes, limit: bytes, lease: bytes, id: bytes) -> list[int] | None:
        """The usual case in a straight line: room for one more slot, and no lease that has ended. None where not."""
        gauge, span = self.get(key, Gauge), int(lease)
        end = self.now + span
        if not gauge:
            if limit == b"0" or not limit.isdigit():
                return None
            gauge = self.data[key] = Gauge()
            first = end
            gauge.expires = self.time + span + 2 * HOUR + self.spare
        else:
            first = gauge.ends[0][0]
            if first <= self.now or id in gauge.held or not limit.isdigit() or len(gauge.ends) >= int(limit):
                return None
            hour = end // HOUR
            if first // HOUR != hour and gauge.expires < self.time + (hour + 2) * HOUR - self.now + self.spare:
                gauge.expires = self.time + span + 2 * HOUR + self.spare
        gauge.held[id] = end
        insort(gauge.ends, (end, id))
        return [1, TAKES, len(gauge.ends), min(first - self.now, span), 0]

    def _decide(self, states: Sequence[_Slots | _Window], mode: bytes, limits: Args, permits: Args) -> list[int]:
        stride = 1
        for state, limit in zip(states, limits, strict=True):
            state.rule(limit)
            stride += isinstance(state, _Window)
        reply: list[int] = []
        for at in self._permits(permits, stride):
            id = permits[at]
            status, verdicts, costs = _judged(states, permits, at, mode)
            reply.append(status)
            for state, verdict, cost in zip(states, verdicts, costs, strict=True):
                if status == 1 and verdict != HELD:
                    state.used = min(state.used + cost, BEYOND)
                    state.reset = min(state.reset or state.span, state.span)
                    state.new[id] = cost
                reply += (verdict, state.used, state.reset, 0)
        if mode != b"dry":
            for k, state in enumerate(states):
                if state.new or state.moved:
                    reply[4 * k + 4] = state.write()
        return reply

    # What becomes of permits held

    def _release(self, keys: Sequence[bytes], args: Args) -> list[int]:
        if len(keys) == 1 and len(args) == 2:
            return self._give(keys[0], args[1])
        return self._end(keys, [b"s"] * len(keys), args[1:])

    def _finish(self, keys: Sequence[bytes], args: Args) -> list[int]:
        return self._end(keys, args[1 : 1 + len(keys)], args[1 + len(keys) :])

    def _give(self, key: bytes, id: bytes) -> list[int]:
        """The usual case in a straight line: one slot."""
        gauge = self.get(key, Gauge)
        end = gauge.held.get(id, 0) if gauge else 0
        if gauge and end:
            gauge.remove(id)
            if not gauge.held:
                del self.data[key]
        return [2, 1] if end > self.now else [0, 0]

    def _settle(self, keys: Sequence[bytes], args: Args) -> list[int]:
        return self._end(keys, args[1 : 1 + len(keys)], args[1 + len(keys) :], keep=True)

    def _end(self, keys: Sequence[bytes], spans: Args, permits: Args, *, keep: bool = False) -> list[int]:
        stride = 1 + sum(span != b"s" for span in spans)
        starts = self._permits(permits, stride)
        found = [
            self.get(key, Gauge) if span == b"s" else self._live(key, span)
            for key, span in zip(keys, spans, strict=True)
        ]
        reply: list[int] = []
        for at in starts:
            id, column = permits[at], at
            codes = []
            for span, value in zip(spans, found, strict=True):
                column += span != b"s"  # also where there is no window any more
                if isinstance(value, Gauge):
                    codes.append(int(value.held.get(id, 0) > self.now))
                    value.remove(id)
                    continue
                codes.append(int(value is not None and id in value.charges))
                if value is not None and id in value.charges:
                    _charge(value, id, permits[column], keep)
            reply += _outcome(codes)
        for key, value in zip(keys, found, strict=True):
            if isinstance(value, Gauge) and not value.held:
                self.data.pop(key, None)
        return reply

    def _renew(self, keys: Sequence[bytes], args: Args) -> list[int]:
        permits = args[1 + len(keys) :]
        self._permits(permits, 1)
        found = [(self.get(key, Gauge), int(args[1 + k])) for k, key in enumerate(keys)]
        reply: list[int] = []
        for id in permits:
            codes = []
            for gauge, span in found:
                end = gauge.held.get(id, 0) if gauge else 0
                codes.append(int(end > self.now))
                if gauge and end > self.now:
                    gauge.put(id, max(end, self.now + span))
                    gauge.expires = max(gauge.expires, self.time + span + 2 * HOUR + self.spare)
            reply += _outcome(codes)
        return reply

    # Looking

    def _count(self, keys: Sequence[bytes], _: Args) -> list[int]:
        return [_Slots(self, key, 0).used for key in keys]

    def _peek(self, keys: Sequence[bytes], args: Args) -> list[int]:
        reply: list[int] = []
        for key, span in zip(keys, args[1:], strict=True):
            state = _Slots(self, key, 0) if span == b"s" else _Window(self, key, int(span))
            reply += (state.used, state.reset)
        return reply

    def _live(self, key: bytes, span: bytes) -> Window | None:
        window = self.get(key, Window)
        return window if window and self.now < window.start + int(span) else None

    def _permits(self, permits: Args, stride: int) -> range:
        if not 1 <= len(permits) / stride <= BATCH or len(permits) % stride:
            raise WrongArguments(
                f"ERR pyslot: expected 1 to {BATCH} permits of {stride} arguments each, got {len(permits)} arguments"
            )
        return range(0, len(permits), stride)


def _judged(
    states: Sequence[_Slots | _Window], permits: Args, at: int, mode: bytes
) -> tuple[int, list[int], list[int]]:
    """One permit's status, and for each key the verdict and the cost."""
    verdicts, costs, status, column = [], [], 2, at
    for state in states:
        cost, verdict = 1, HELD
        if isinstance(state, _Window):
            column += 1
            cost = int(permits[column])
        if not state.holds(permits[at]):
            verdict = _judge(state, cost, mode)
            status = 0 if verdict in (FULL, NEVER) else min(status, 1)
        costs.append(cost)
        verdicts.append(verdict)
    return status, verdicts, costs


def _judge(state: _State, cost: int, mode: bytes) -> int:
    if state.used + cost <= state.limit:
        return TAKES
    if state.observed or mode == b"rejoin":
        return OBSERVED
    return NEVER if cost > state.limit else FULL


def _charge(window: Window, id: bytes, figure: bytes, keep: bool) -> None:
    before = window.charges[id]
    after = before if figure == b"-" else int(figure)
    if window.used < BEYOND:
        window.used = min(window.used - before + after, BEYOND)
    if keep:
        window.charges[id] = after
    else:
        del window.charges[id]


def _outcome(codes: list[int]) -> list[int]:
    held = sum(codes)
    return [2 if held == len(codes) else min(held, 1), *codes]


_SCRIPTS: dict[str, Callable[[Model, Sequence[bytes], Args], list[int]]] = {
    name: getattr(Model, f"_{name}")
    for name in ("acquire", "release", "renew", "count", "reserve", "settle", "peek", "admit", "finish")
}
