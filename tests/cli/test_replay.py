"""`pyslot replay` says what limits would have done, from any CSV."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyslot.errors import UsageError
from pyslot.replay.trace import milliseconds, read
from tests.cli.conftest import Pipe, Terminal
from tests.servers.process import Server

EXCERPT = Path(__file__).parents[2] / "pyslot/demo/azure-llm-code-2023-excerpt.csv"
WHOLE = Path(__file__).parents[3] / "shared/data/azure-llm-code-2023.csv"

TRACE = """time,who,in,out,secs
0,a,10,30,2
1,a,10,30,2
2,b,10,30,2
3,a,90,30,2
59,b,10,20,2
61,b,10,20,2
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def replayed(pipe: Pipe, *args: str) -> dict[str, Any]:
    done = pipe("replay", *args, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


COLUMNS = ("--columns", "prompt=in,answer=out,hold=secs")


def test_slots_are_held_for_as_long_as_the_column_says(call: Pipe, trace: Path) -> None:
    # At 1 s the first is still at work; the one of 2 s takes its place; that of 3 s is refused.
    found = replayed(call, str(trace), *COLUMNS, "--slots", "1")
    assert (found["admitted"], found["limits"]["slots"]["refused"]) == (4, 2)
    assert [minute["refused"] for minute in found["minutes"]] == [{"slots": 2}, {}]


def test_slots_are_held_for_the_tokens_of_the_answer_otherwise(call: Pipe, trace: Path) -> None:
    args = (str(trace), "--columns", "prompt=in,answer=out", "--slots", "1")
    assert replayed(call, *args, "--speed", "60")["admitted"] == 6  # half a second each
    assert replayed(call, *args, "--speed", "0.5")["admitted"] == 2  # a minute, but for the last


def test_tokens_are_reserved_and_settled(call: Pipe, trace: Path) -> None:
    # 60 for the first, 40 in the end at 2 s; so at 1 s there is no room for 60, and at 2 s there is.
    found = replayed(call, str(trace), *COLUMNS, "--tpm", "100", "--max-tokens", "50")
    assert [minute["admitted"] for minute in found["minutes"]] == [2, 1]
    assert found["limits"]["tokens"] == {"limit": 100, "peak": 100, "refused": 3, "refused_alone": 3}
    assert found["never"] == 1  # 90 + 50
    assert found["tokens"] == {"wanted": 300, "used": 110, "reserved": 180}


def test_every_subject_has_limits_of_its_own(call: Pipe, trace: Path) -> None:
    alone = replayed(call, str(trace), *COLUMNS, "--rpm", "2")
    each = replayed(call, str(trace), *COLUMNS, "--rpm", "2", "--by", "who")
    assert (alone["admitted"], each["admitted"]) == (3, 4)


def test_a_server_and_the_memory_say_the_same_and_the_server_is_left_clean(
    server: Server, call: Pipe, trace: Path
) -> None:
    args = (str(trace), *COLUMNS, "--slots", "2", "--rpm", "3", "--tpm", "150", "--max-tokens", "50", "--by", "who")
    counted = replayed(call, *args, "--url", server.url)
    assert counted == replayed(call, *args)
    assert counted["admitted"] == 5
    assert server.command("DBSIZE") == 0


def test_known_columns_are_found_and_a_table_of_80_columns_comes(pipe: Pipe) -> None:
    done = pipe("replay", str(EXCERPT), "--slots", "20", "--rpm", "200", "--tpm", "500000")
    assert done.returncode == 0
    assert "1,917 requests in 7.0 minutes" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.skipif(not WHOLE.exists(), reason="the whole trace is not part of the project")
def test_an_hour_replays_in_seconds(pipe: Pipe) -> None:
    found = replayed(pipe, str(WHOLE), "--slots", "20", "--rpm", "200", "--tpm", "500000")
    assert found["requests"] == 8819


def test_other_line_ends_marks_digits_and_orders_are_read(tmp_path: Path) -> None:
    path = tmp_path / "conv.csv"
    path.write_bytes(
        b"\xef\xbb\xbfTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        b"2023-11-16 18:15:50.9951690,4085,44\r\n"
        b"2023-11-16 18:15:46,374,60\r\n"
        b"\r\n"
        b"2024-05-10 00:00:00.009930+00:00,12,0"
    )
    found = read(path, {}, by=None, speed=30)
    assert [(each.prompt, each.answer, each.hold_ms) for each in found] == [
        (374, 60, 2000),
        (4085, 44, 1467),
        (12, 0, 0),
    ]
    assert found[1].at - found[0].at == 4995


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("12.5", 12_500),
        ("1700000000", 1_700_000_000_000),
        ("1700000000123", 1_700_000_000_123),
        ("1970-01-01T00:00:01Z", 1000),
    ],
)
def test_times_are_read_as_traces_write_them(text: str, ms: int) -> None:
    assert milliseconds(text) == ms


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "which column is the time"),
        ("time,x\n1,2\n", "hold=NAME"),
        ("time,duration\n", "holds no requests"),
        ("time,duration\n1,2\nx,2\n", "line 3: 'x' in the column time is no time"),
        ("time,duration\n1,-2\n", "line 2: '-2' in the column duration is no number"),
        ("time,duration\n1,nan\n", "line 2: 'nan'"),
        ("time,duration\n1\n", ""),
    ],
)
def test_what_is_wrong_with_a_trace_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    if not said:  # what is missing at the end of a line counts as nothing
        assert read(path, {}, by=None, speed=1)[0].hold_ms == 0
        return
    with pytest.raises(UsageError) as caught:
        read(path, {}, by=None, speed=1)
    assert said in str(caught.value)


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_it_is_drawn(pipe: Pipe, tmp_path: Path, trace: Path, suffix: str) -> None:
    done = pipe("replay", str(trace), *COLUMNS, "--slots", "1", "--tpm", "100", "--plot", f"out{suffix}")
    assert done.returncode == 0, done.stderr
    drawn = (tmp_path / f"out{suffix}").read_bytes()
    assert drawn.startswith(b"\x89PNG") if suffix == ".png" else b"</svg>" in drawn
    assert f"out{suffix}" in done.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "Give --slots, --rpm or --tpm"),
        (("--slots", "-1"), "-1 is not in the range"),
        (("--slots", "1", "--by", "nobody"), "it has time, who, in, out, secs"),
        (("--slots", "1", "--columns", "whatever=in"), "--columns takes"),
        (("--slots", "1", "--columns", "answer=nope"), "no column 'nope'"),
        (("--slots", "1", "--plot", "out.gif"), ".svg or .png"),
        (("--slots", "1", "--plot", "no/where.svg"), "no directory"),
        (("--slots", "1", *COLUMNS, "--url", "redis://localhost:1"), "localhost:1"),
    ],
)
def test_what_can_not_be_is_one_line(call: Pipe, trace: Path, args: tuple[str, ...], said: str) -> None:
    done = call("replay", str(trace), *args)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_terminal_gets_a_bar(terminal: Callable[..., Terminal]) -> None:
    seen = terminal("replay", str(EXCERPT), "--slots", "20").finish()
    assert seen.status == 0
    assert "replaying" in seen.text
    assert "1,917 requests" in seen.text
