"""Random runs of script calls over a few keys and ids, so that permits meet often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias, TypeVar

from hypothesis import strategies as st

from pyslot.model import HOUR

MOST = 2**53 - 1
START = 1_700_000_000_000

GAUGES = (b"{t}:s:0", b"{t}:s:1", b"{t}:s:2")
WINDOWS = (b"{t}:w:0", b"{t}:w:1", b"{t}:w:2")
KEYS = GAUGES + WINDOWS
IDS = (b"a", b"b", b"c", b"d", b"s", b"n")  # the last two are also names of a window's own fields
GAUGE_ONLY = ("acquire", "release", "renew", "count")
WINDOW_ONLY = ("reserve", "settle")
ADMITS = ("acquire", "reserve", "admit")

Figures: TypeAlias = list[int]
Data: TypeAlias = dict[bytes, dict[bytes, int]]
"""Key -> what it holds, by the names a server has for it: ids and ends of leases, or a window's fields."""


class Rule(NamedTuple):
    """What a call says of a key."""

    limit: bytes
    span: int

    @property
    def most(self) -> int | None:
        """What admission may not exceed, if anything."""
        return int(self.limit) if self.limit.isdigit() else None


class Step(NamedTuple):
    """One script call, in the scripts' own words, and the time it brings."""

    script: str
    keys: tuple[bytes, ...]
    now: int
    mode: bytes
    rules: tuple[Rule, ...]
    permits: tuple[tuple[bytes, tuple[int, ...]], ...]
    """Ids, each with a figure for every key; those of gauges are not sent."""

    def head(self) -> list[bytes]:
        now, spans = b"%d" % self.now, [b"%d" % rule.span for rule in self.rules]
        kinds = [b"s" if key in GAUGES else b"w" for key in self.keys]
        peeked = [b"s" if kind == b"s" else span for kind, span in zip(kinds, spans, strict=True)]
        match self.script:
            case "acquire" | "reserve":
                return [now, self.mode, *chain(*zip([rule.limit for rule in self.rules], spans, strict=True))]
            case "admit":
                rules = zip(kinds, [rule.limit for rule in self.rules], spans, strict=True)
                return [now, self.mode, *chain(*rules)]
            case "settle" | "renew":
                return [now, *spans]
            case "finish" | "peek":
                return [now, *peeked]
            case "reset":
                return []
        return [now]

    def args(self) -> list[bytes]:
        if self.script in ("count", "peek", "reset"):
            return self.head()
        return self.head() + [arg for id, figures in self.permits for arg in (id, *self._figures(figures))]

    def costs(self, figures: Sequence[int]) -> list[int]:
        return [1 if key in GAUGES else cost for key, cost in zip(self.keys, figures, strict=True)]

    def _figures(self, figures: Sequence[int]) -> Iterator[bytes]:
        stands = self.script in ("finish", "settle")
        for key, figure in zip(self.keys, figures, strict=True):
            if key in WINDOWS:
                yield b"-" if stands and figure == 3 else b"%d" % figure


LIMITS = (b"1", b"2", b"3", b"5", b"0", b"~2", b"~0", b"-", b"~-", b"%d" % MOST)
SPANS = (1_000, 60_000, 50, 10, 1, 3 * HOUR)
FIGURES = (1, 1, 0, 2, 3, 4, 6, MOST, 10**15)
CLOCK = (*[0] * 8, 1, 5, 10, 50, 1_000, 60_000, 4 * HOUR, -1, -10, -50, -1_000, -60_000, -4 * HOUR)
MODES = (b"", b"", b"", b"", b"dry", b"rejoin")
_OFTEN = ("admit", "finish", "settle", "acquire", "reserve", "admit", "admit", "renew", "release")
CALLS = ("none", *_OFTEN, "admit", "finish", "settle", *_OFTEN, "admit", "count", "peek", "reset")

T = TypeVar("T")


class Tape:
    """Choices written as bytes: for Hypothesis one value, so a run of 20 calls is drawn at once. 0 is the simplest."""

    def __init__(self, text: bytes) -> None:
        self._text = iter(text)

    def pick(self, choices: Sequence[T]) -> T:
        return choices[next(self._text) % len(choices)]

    def rules(self, count: int) -> list[Rule]:
        return [Rule(self.pick(LIMITS), self.pick(SPANS)) for _ in range(count)]

    def step(self, now: int, common: Sequence[Rule]) -> Step:
        script, clock, mode = self.pick(CALLS), self.pick(CLOCK), self.pick(MODES)
        pool = GAUGES if script in GAUGE_ONLY else WINDOWS if script in WINDOW_ONLY else KEYS
        wild, size = self.pick((False, False, False, True)), self.pick((1, 2, 3, 4))
        keys = tuple(dict.fromkeys([self.pick(pool) for _ in range(4)][:size]))
        own = self.rules(4)
        rules = own[: len(keys)] if wild else [common[KEYS.index(key)] for key in keys]
        size = self.pick((1, 1, 2, 3, 4, 6))
        permits = [(self.pick(IDS), tuple(self.pick(FIGURES) for _ in range(4))[: len(keys)]) for _ in range(size)]
        return Step(script, keys, now + clock, mode, tuple(rules), tuple(permits))


def steps(usual: bytes, calls: Sequence[bytes]) -> list[Step]:
    """Calls that mostly keep to one rule for each key: were all wild, little would ever be full, or held."""
    common = Tape(usual).rules(len(KEYS))
    made: list[Step] = []
    for call in calls:
        made.append(Tape(call).step(made[-1].now if made else START, common))
    return [step for step in made if step.script != "none"]


a_run = st.builds(
    steps,
    st.binary(min_size=2 * len(KEYS), max_size=2 * len(KEYS)),
    st.lists(st.binary(min_size=48, max_size=48), min_size=16, max_size=32),
)
