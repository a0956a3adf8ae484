"""What workers write down, and how it is read again."""

from __future__ import annotations

import os
import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

_ROW = struct.Struct("<dBBIi")


class Step(IntEnum):
    ASK = 0
    """About to acquire; `value` is the cost."""
    GRANT = 1
    REFUSED = 2
    FAILED = 3
    """Acquiring raised."""
    END = 4
    """The work is over, about to finish; `value` is the real figure."""
    DONE = 5
    LATER = 6
    """Finishing raised: it goes on in the background."""
    LOST = 7
    """At its end the permit was known to have lost its slot."""
    CLOSED = 8
    """The worker has closed its limiter."""
    STALL = 9
    """The worker got no processor for `value` ms."""


class Row(NamedTuple):
    at: float
    step: Step
    gauge: int
    op: int
    value: int


class Book:
    """One worker's file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, step: Step, gauge: int, op: int, value: int = 0) -> None:
        os.write(self._file, _ROW.pack(time.monotonic(), step, gauge, op, value))


def read(path: Path) -> Iterator[Row]:
    data = path.read_bytes()
    for at in range(0, len(data) - _ROW.size + 1, _ROW.size):
        when, step, gauge, op, value = _ROW.unpack_from(data, at)
        yield Row(when, Step(step), gauge, op, value)


@dataclass
class Op:
    """One request as its worker saw it."""

    gauge: int
    cost: int
    asked: float
    answered: float | None = None
    granted: bool = False
    failed: bool = False
    ended: float | None = None
    figure: int = 0
    done: float | None = None
    later: bool = False
    lost: bool = False


@dataclass
class Account:
    """One worker's whole book."""

    ops: dict[int, Op] = field(default_factory=dict)
    closed: bool = False
    killed: float | None = None
    stall: float = 0.0
    """Seconds it got no processor, at longest."""


def account(path: Path, killed: float | None) -> Account:
    result = Account(killed=killed)
    for at, step, gauge, number, value in read(path):
        if step is Step.CLOSED:
            result.closed = True
            continue
        if step is Step.STALL:
            result.stall = max(result.stall, value / 1000)
            continue
        if step is Step.ASK:
            result.ops[number] = Op(gauge, value, at)
            continue
        op = result.ops[number]
        match step:
            case Step.GRANT | Step.REFUSED | Step.FAILED:
                op.answered, op.granted, op.failed = at, step is Step.GRANT, step is Step.FAILED
            case Step.END:
                op.ended, op.figure = at, value
            case Step.DONE | Step.LATER:
                op.done, op.later = at, step is Step.LATER
            case Step.LOST:
                op.lost = True
    return result


@dataclass
class Findings:
    """What the checker found in one scene."""

    operations: int = 0
    permits: int = 0
    refused: int = 0
    failed: int = 0
    over: int = 0
    """Times at which more than the limit were in flight whose leases the server still honoured."""
    forgotten_over: float = 0.0
    """Seconds with more in flight than the limit, counting those whose state the server had lost."""
    forgotten_longest: float = 0.0
    forgotten_most: int = 0
    """The most above the limit then."""
    lost: int = 0
    """Permits whose leases ended before they were renewed, or whose gauge was gone."""
    charge_errors: int = 0
    """Units lost or charged twice, in windows whose server kept its data."""
    slots_left: int = 0
    slowest: float = 0.0
    """Seconds the longest answer took."""
    stall: float = 0.0
    """Seconds a worker got no processor, at longest: no answer can be quicker."""
    faults: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def check_slots(accounts: list[Account], losses: list[float], limit: int, found: Findings) -> None:
    """Sweep over everything that was in flight, gauge by gauge.

    A holder counts as in flight from when it was told so to when its work was over: never longer than it was. It counts
    as forgotten if the server lost its state in between, or its permit said so.
    """
    moments: dict[int, list[tuple[float, int, bool]]] = defaultdict(list)
    for book in accounts:
        for op in book.ops.values():
            end = op.ended if op.ended is not None else book.killed
            if op.granted and op.answered is not None and end is not None and end > op.answered:
                gone = op.lost or any(op.asked <= loss <= end for loss in losses)
                moments[op.gauge] += [(op.answered, 1, gone), (end, -1, gone)]
    for rows in moments.values():
        _sweep(sorted(rows), limit, found)


def _sweep(rows: list[tuple[float, int, bool]], limit: int, found: Findings) -> None:
    honoured = forgotten = 0
    began: float | None = None
    for at, change, gone in rows:
        if gone:
            forgotten += change
        else:
            honoured += change
        if change > 0 and honoured > limit:
            found.over += 1
        above = honoured + forgotten - limit
        if above > 0 and forgotten:
            found.forgotten_most = max(found.forgotten_most, above)
            began = at if began is None else began
        elif began is not None:
            found.forgotten_over += at - began
            found.forgotten_longest = max(found.forgotten_longest, at - began)
            began = None


def bounds(book: Account, settling: float) -> tuple[int, int]:
    """The least and the most units that a worker's window may hold, by its book.

    A worker that closed knows exactly. One that was killed took with it what was to be cleaned up in the last
    `settling` seconds: an unanswered request may or may not stand at its estimate, an unanswered end at its figure.
    """
    least = most = 0
    for op in book.ops.values():
        recent = book.killed is not None and (op.done or op.ended or op.answered or op.asked) > book.killed - settling
        if op.answered is None or op.failed:
            options = {0, op.cost} if recent else {0}
        elif not op.granted:
            options = {0}
        elif op.ended is None:
            options = {op.cost}
        elif op.done is None or op.later:
            options = {op.cost, op.figure} if recent else {op.figure}
        else:
            options = {op.figure}
        least += min(options)
        most += max(options)
    return least, most


def tally(accounts: list[Account], found: Findings) -> None:
    for book in accounts:
        found.stall = max(found.stall, book.stall)
        for op in book.ops.values():
            found.operations += 1 + (op.ended is not None)
            found.permits += op.granted
            found.failed += op.failed
            found.refused += op.answered is not None and not op.granted and not op.failed
            found.lost += op.lost
            if op.answered is not None:
                found.slowest = max(found.slowest, op.answered - op.asked)
            if op.done is not None and op.ended is not None:
                found.slowest = max(found.slowest, op.done - op.ended)
