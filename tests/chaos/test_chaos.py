"""The short form of the chaos, and the checker itself: it must see what it is there to see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.books import Account, Book, Findings, Op, Step, account, bounds, check_slots

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_all_that_must_hold_holds_through_a_minute_of_faults() -> None:
    seconds = os.environ.get("PYSLOT_CHAOS_SECONDS", "24")
    command = [sys.executable, "-m", "tests.chaos", "--seconds", seconds]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr


def _held(start: float, end: float | None, *, lost: bool = False) -> Op:
    return Op(0, 5, start, start, granted=True, ended=end, figure=3, done=end, lost=lost)


def _sweep(ops: list[Op], losses: list[float]) -> Findings:
    found = Findings()
    check_slots([Account(dict(enumerate(ops)))], losses, 2, found)
    return found


def test_the_checker_sees_one_holder_too_many() -> None:
    assert _sweep([_held(0, 9), _held(1, 9), _held(9, 10)], []).over == 0
    assert _sweep([_held(0, 9), _held(1, 9), _held(8.99, 10)], []).over == 1


def test_the_checker_keeps_forgotten_holders_apart() -> None:
    found = _sweep([_held(0, 9), _held(1, 9), _held(5, 7), _held(5, 8)], [3.0])
    assert (found.over, found.forgotten_over, found.forgotten_most) == (0, 3.0, 2)
    found = _sweep([_held(0, 9, lost=True), _held(1, 9), _held(5, 7)], [])
    assert (found.over, found.forgotten_over) == (0, 2.0)
    assert _sweep([_held(0, 9), _held(4, 9), _held(4, 9), _held(5, 9)], [3.0]).over == 1


def test_the_checker_knows_what_a_window_may_hold(tmp_path: Path) -> None:
    path = tmp_path / "book"
    book = Book(path)
    for step, op, value in (
        (Step.ASK, 0, 10), (Step.GRANT, 0, 0), (Step.END, 0, 4), (Step.DONE, 0, 0),
        (Step.ASK, 1, 10), (Step.FAILED, 1, 0),
        (Step.ASK, 2, 10), (Step.GRANT, 2, 0), (Step.END, 2, 7), (Step.LATER, 2, 0),
        (Step.ASK, 3, 10), (Step.REFUSED, 3, 0),
        (Step.ASK, 4, 20), (Step.GRANT, 4, 0),
    ):  # fmt: skip
        book.write(step, 0, op, value)
    whole = account(path, None)
    assert bounds(whole, 5) == (4 + 7 + 20,) * 2
    whole.killed = whole.ops[4].asked + 1
    assert bounds(whole, 5) == (4 + 0 + 7 + 20, 4 + 10 + 10 + 20)
    assert bounds(whole, 0.0) == (4 + 7 + 20,) * 2
