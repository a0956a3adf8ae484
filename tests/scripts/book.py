"""What must hold of any implementation of the scripts, whatever is asked of it."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import event

from pyslot.model import BEYOND, FULL, HELD, NEVER, OBSERVED, TAKES
from tests.scripts.runs import ADMITS, GAUGES, KEYS, WINDOWS, Data, Figures, Rule, Step
from tests.scripts.wire import chunks


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
