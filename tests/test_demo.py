"""The demo runs as shipped, says what it saw, and fails where a figure is off."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from io import StringIO

import pytest

pytest.importorskip("rich")

from rich.console import Console

from pyslot.demo import crowd, race, replay, report
from pyslot.demo.figures import Chapter, Figure
from pyslot.demo.model_server import Load


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_it_runs_and_every_figure_is_ok() -> None:
    plain = {
        name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE"}
    }
    done = subprocess.run(
        [sys.executable, "-m", "pyslot.demo", "--quick"], capture_output=True, text=True, check=False, env=plain
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "OFF" not in done.stdout
    assert re.search(r"All \d+ figures are OK", done.stdout)
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def conclude(*figures: Figure) -> tuple[int, str]:
    out = Console(file=StringIO(), width=80)
    chapters = [Chapter("title", "story", figures)]
    report.show(out, chapters[0])
    status = report.conclude(out, chapters, 1.0)
    assert isinstance(out.file, StringIO)
    return status, out.file.getvalue()


def test_one_figure_that_is_off_fails_the_whole() -> None:
    fine, off, told = Figure("a", "1", "1", ok=True), Figure("b", "1", "2", ok=False), Figure("c", "-", "3")
    assert conclude(fine, told)[0] == 0
    status, text = conclude(fine, off, told)
    assert status == 1
    assert "OFF" in text
    assert "1 of 2 figures are OFF" in text


def off(figures: list[Figure]) -> list[str]:
    return [figure.what for figure in figures if figure.ok is False]


CROWD = crowd.Seen(
    rush=Load(served=40, now=5, peak=5, busy=19.0, seconds=4.0),
    total=Load(served=50, now=0, peak=5, busy=20.0, seconds=5.0),
    waits=[[0.1] * 25, [0.2] * 25],
    left_over=0,
)


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        (CROWD, []),
        (replace(CROWD, total=replace(CROWD.total, peak=6)), ["most requests at once"]),
        (replace(CROWD, total=replace(CROWD.total, peak=4)), ["most requests at once"]),
        (replace(CROWD, rush=replace(CROWD.rush, busy=17.9)), ["slot-seconds used"]),
        (replace(CROWD, waits=[[0.1] * 49]), ["requests served"]),
        (replace(CROWD, left_over=1), ["slots held afterwards"]),
        (replace(CROWD, waits=[[0.1] * 23, [0.2] * 27]), ["turns of workers of one process"]),
    ],
)
def test_the_crowd_is_judged(seen: crowd.Seen, wrong: list[str]) -> None:
    assert off(crowd.judge(seen)) == wrong


def calls(*granted: bool, apart: float = 0.0) -> tuple[race.Call, ...]:
    return tuple(race.Call(got, n * apart, n * apart + 1.0) for n, got in enumerate(granted))


ONE, NONE, TWO = calls(True, False, False), calls(False, False, False), calls(True, False, True)


@pytest.mark.parametrize(
    ("rounds", "used", "wrong"),
    [
        ([ONE, ONE], [(60, 60), (60, 60)], []),
        ([ONE, NONE], [(60, 60), (60, 60)], ["here: one granted, 2 refused"]),
        ([TWO, ONE], [(60, 60), (60, 60)], ["here: one granted, 2 refused"]),
        ([ONE, ONE], [(60, 60), (60, 120)], ["here: 60 tokens in both windows"]),
        ([calls(True, False, False, apart=0.6)], [(60, 60)], ["here: all 3 calls overlapped"]),
    ],
)
def test_a_race_is_judged(rounds: list[tuple[race.Call, ...]], used: list[tuple[int, ...]], wrong: list[str]) -> None:
    assert off(race.judge("here", race.Seen(rounds, used))) == wrong


def test_the_two_windows_of_a_round_are_on_different_servers_of_the_cluster() -> None:
    for number in range(200):
        one, other = race.windows(number)
        assert race.third(one) != race.third(other)


def replayed() -> replay.Seen:
    limits = [limit for limits in (*replay.OF_KEY.values(), *replay.OF_TEAM.values()) for limit in limits]
    return replay.Seen(
        asked=10,
        admitted=6,
        refused=4,
        refused_by=Counter(limits),
        peaks={limit: limit.limit or 0 for limit in limits},
        answers=16,
        answers_right=16,
        looks=99,
        looks_right=99,
        used=1_000,
        counted=1_000,
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("field", "value", "wrong"),
    [
        ("admitted", 6, []),
        ("admitted", 7, ["requests answered"]),
        ("answers_right", 15, ["admitted or refused, and by whom, as the books say"]),
        ("looks_right", 98, ["looks at what is used, equal to the books"]),
        ("counted", 999, ["tokens counted by the server in all"]),
    ],
)
def test_a_replay_is_judged(field: str, value: int, wrong: list[str]) -> None:
    seen = replayed()
    setattr(seen, field, value)
    assert off(replay.judge(seen)) == wrong


def test_a_replay_is_judged_by_what_each_limit_held_and_refused() -> None:
    seen = replayed()
    slots, requests, _ = replay.OF_TEAM["a"]
    seen.peaks[slots] += 1
    for limits in replay.OF_TEAM.values():
        del seen.refused_by[limits[1]]
    assert requests not in seen.refused_by
    assert off(replay.judge(seen)) == ["requests in flight of a team", "requests a minute of a team"]
