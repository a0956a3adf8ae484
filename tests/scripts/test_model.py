"""The reference model and the scripts on real servers are one: every reply, every key, after every step.

PYSLOT_EXAMPLES=20000 runs so many examples in place of the few of a normal run; PYSLOT_SERVERS=all compares with every
server of the table.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import NamedTuple, TypeAlias, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from pyslot.model import BEYOND, FULL, HELD, HOUR, NEVER, OBSERVED, TAKES, Gauge, Model
from tests.conftest import GetServer
from tests.scripts.wire import SCRIPTS, Command, Wire, chunks, connect
from tests.servers.binaries import SERVERS

NAMES = SERVERS if os.environ.get("PYSLOT_SERVERS") == "all" else ("redis-6.2", "valkey-9.1")
EXAMPLES = int(os.environ.get("PYSLOT_EXAMPLES", "150"))
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


# What is looked at after every step

Data: TypeAlias = dict[bytes, dict[bytes, int]]
"""Key -> what it holds, by the names a server has for it: ids and ends of leases, or a window's fields."""


def data(model: Model) -> Data:
    found: Data = {}
    for key, value in model.data.items():
        if isinstance(value, Gauge):
            assert sorted((end, id) for id, end in value.held.items()) == value.ends
            found[key] = dict(value.held)
        else:
            charges = {b":" + id: charge for id, charge in value.charges.items()}
            found[key] = {b"s": value.start, b"n": value.used, **charges}
    return found


LOOK: list[Command] = [
    command
    for key in KEYS
    for command in ((b"ZRANGE", key, 0, -1, b"WITHSCORES") if key in GAUGES else (b"HGETALL", key), (b"PTTL", key))
]


def seen(replies: Sequence[object]) -> tuple[Data, dict[bytes, int]]:
    """The data and the times to live, from the replies to `LOOK`."""
    found: Data = {}
    ttls = {}
    for key, (values, ttl) in zip(KEYS, chunks(replies, 2), strict=True):
        if values:
            assert isinstance(values, list)
            # A score is printed as a double is: 17 digits, maybe with an exponent.
            found[key] = {name: whole(value) for name, value in chunks(values, 2)}
            assert isinstance(ttl, int)
            ttls[key] = ttl
        else:
            assert ttl == -2
    return found, ttls


def whole(number: bytes) -> int:
    return int(number) if number.isdigit() else int(float(number))


# The comparison


@pytest.fixture
def wires(get_server: GetServer) -> Iterator[dict[str, Wire]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(connect(get_server(name))) for name in NAMES}


@pytest.mark.timeout(0 if EXAMPLES > 1_000 else 120)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(a_run)
def test_the_model_and_the_servers_agree(wires: dict[str, Wire], run: list[Step]) -> None:
    born = time.time_ns() // 1_000_000
    model = Model(lambda: born)
    wanted = []
    book = Book()
    for step in run:
        before = data(model)
        reply = model.run(step.script, step.keys, step.args())
        after = data(model)
        book.enter(step, reply, before, after)
        wanted.append((reply, after, {key: value.expires - born for key, value in model.data.items()}))
    for name, wire in wires.items():
        commands: list[Command] = [(b"UNLINK", *KEYS)]
        for step in run:
            commands += ((b"EVALSHA", SCRIPTS[step.script].sha, len(step.keys), *step.keys, *step.args()), *LOOK)
        wire.many((b"SCRIPT", b"LOAD", script.text) for script in SCRIPTS.values())
        _, *replies = wire.many(commands)
        slack = time.time_ns() // 1_000_000 - born + 5
        for step, record, (reply, after, ttls) in zip(run, chunks(replies, 1 + len(LOOK)), wanted, strict=True):
            assert record[0] == reply, (name, step)
            found, lives = seen(record[1:])
            assert found == after, (name, step)
            assert all(abs(lives[key] - ttl) <= slack for key, ttl in ttls.items()), (name, step, lives, ttls)


class Book:
    """What must hold of any implementation, told from what was asked, what was replied and what was there before."""

    def __init__(self) -> None:
        self.settled: dict[bytes, int] = {}
        """Units of a window that stand though their permits have finished."""
        self.beyond: set[bytes] = set()
        """Windows that counted more than can be counted."""

    def enter(self, step: Step, reply: Figures, before: Data, after: Data) -> None:
        assert all(number >= 0 for number in reply)
        for key in KEYS:
            if key not in step.keys:
                assert after.get(key) == before.get(key)
            if key in after:
                assert all(0 <= number <= BEYOND for number in after[key].values())
        if step.script in ADMITS:
            self.admission(step, reply, before, after)
        elif step.script in ("release", "finish", "settle", "renew"):
            self.outcomes(step, reply, before, after)
        elif step.script == "reset":
            assert reply == [sum(key in before for key in step.keys)]
            assert not any(key in after for key in step.keys)
        else:
            assert after == before
        self.add_up(step, before, after)

    def admission(self, step: Step, reply: Figures, before: Data, after: Data) -> None:
        granted: list[bytes] = []
        for (id, units), (status, *numbers) in zip(step.permits, chunks(reply, 1 + 4 * len(step.keys)), strict=True):
            event(f"{step.script} {step.mode.decode()} {status}")
            verdicts = set(numbers[::4])
            assert status == (0 if {FULL, NEVER} & verdicts else 2 if verdicts == {HELD} else 1)
            for key, rule, cost, (verdict, used, reset, _) in zip(
                step.keys, step.rules, step.costs(units), chunks(numbers, 4), strict=True
            ):
                assert (verdict == HELD) == (id in granted or held(before, key, id, step.now, rule.span))
                assert right(verdict, step, rule, used - cost if status == 1 else used, cost) or used == BEYOND
                assert 0 <= reset <= rule.span or key in GAUGES
            if status == 1:
                granted.append(id)
        if step.mode == b"dry" or not granted:
            self.untouched(step, before, after)
            return
        for key, rule in zip(step.keys, step.rules, strict=True):
            assert all(held(after, key, id, step.now, rule.span) for id in granted)
            full = used_of(after, key, step.now, rule.span)
            if step.mode == b"" and rule.most is not None and full > used_of(before, key, step.now, rule.span):
                assert full <= rule.most

    def untouched(self, step: Step, before: Data, after: Data) -> None:
        """Nothing was granted. Only the start of a live window moves, from the future to now."""
        expected = dict(before)
        if step.mode != b"dry":
            for key in set(step.keys) & set(WINDOWS) & set(before):
                expected[key] = {**before[key], b"s": min(before[key][b"s"], step.now)}
        assert after == expected

    def outcomes(self, step: Step, reply: Figures, before: Data, after: Data) -> None:
        size = len(step.keys)
        gone: set[bytes] = set()
        for (id, _), (status, *codes) in zip(step.permits, chunks(reply, 1 + size), strict=True):
            event(f"{step.script} {status}")
            assert status == (2 if sum(codes) == size else 1 if sum(codes) else 0)
            for key, rule, code in zip(step.keys, step.rules, codes, strict=True):
                assert code == (id not in gone and held(before, key, id, step.now, rule.span))
            if step.script in ("release", "finish"):
                gone.add(id)
        named = {id for id, _ in step.permits}
        for key, rule in zip(step.keys, step.rules, strict=True):
            # Nobody's call touches what another holds.
            mine = {*named, *(b":" + id for id in named), b"n"} if key in WINDOWS else named
            ours, theirs = ({k: v for k, v in d.get(key, {}).items() if k not in mine} for d in (before, after))
            assert ours == theirs
            for id in named:
                was, still = (held(d, key, id, step.now, rule.span) for d in (before, after))
                assert still == (was and not gone)
                if step.script == "renew" and was:
                    assert after[key][id] == max(before[key][id], step.now + rule.span)

    def add_up(self, step: Step, before: Data, after: Data) -> None:
        """A window's count is the charges of open permits and what finished ones left."""
        for key, rule in zip(step.keys, step.rules, strict=True):
            fields = after.get(key)
            if key not in WINDOWS or fields is None:
                continue
            if key not in before or (step.script in ADMITS and not alive(before[key], step.now, rule.span)):
                if fields != before.get(key):
                    self.settled[key] = 0
                    self.beyond.discard(key)
            elif step.script == "finish" and alive(before[key], step.now, rule.span):
                for id, figure in self._ended(step, key, before[key]):
                    self.settled[key] += before[key][b":" + id] if figure == 3 else figure
            if fields[b"n"] == BEYOND:
                self.beyond.add(key)
            if key in self.beyond:
                assert fields[b"n"] == BEYOND
            else:
                charges = sum(value for name, value in fields.items() if name.startswith(b":"))
                assert fields[b"n"] == charges + self.settled[key]

    @staticmethod
    def _ended(step: Step, key: bytes, fields: dict[bytes, int]) -> Iterator[tuple[bytes, int]]:
        figures: dict[bytes, int] = {}
        for id, units in step.permits:
            if b":" + id in fields:
                figures.setdefault(id, units[step.keys.index(key)])
        yield from figures.items()


def right(verdict: int, step: Step, rule: Rule, used: int, cost: int) -> bool:
    """Whether a verdict fits what was in use before the permit and what the permit asks for."""
    if verdict == HELD:
        return True
    if rule.most is None:
        return verdict in (TAKES, OBSERVED)
    if used + cost <= rule.most:
        return verdict == TAKES
    return verdict == (OBSERVED if step.mode == b"rejoin" else NEVER if cost > rule.most else FULL)


def alive(fields: dict[bytes, int], now: int, per: int) -> bool:
    return now < fields[b"s"] + per


def held(state: Data, key: bytes, id: bytes, now: int, span: int) -> bool:
    fields = state.get(key, {})
    if key in GAUGES:
        return fields.get(id, 0) > now
    return b":" + id in fields and alive(fields, now, span)


def used_of(state: Data, key: bytes, now: int, span: int) -> int:
    fields = state.get(key, {})
    if key in GAUGES:
        return sum(end > now for end in fields.values())
    return fields[b"n"] if fields and alive(fields, now, span) else 0
