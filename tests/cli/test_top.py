"""`pyslot top` shows what is held, on one server and on a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from pyslot import Limiter, Slots, Window
from pyslot.adapters.resp_tools import servers
from pyslot.cli.top import View
from tests.cli.conftest import Pipe, Terminal
from tests.conftest import GetServer
from tests.servers.process import Cluster, Server

_OTHERS = "for i = 1, 20000 do redis.call('SET', 'other:' .. i, i) end"
HELD = {
    ("key:a", "slots", 2),
    ("key:b", "slots", 1),
    ("key:a", "requests", 2),
    ("key:b", "requests", 1),
    ("team:t", "tokens", 300),
    ("user:ü{x}", "slots", 3),
}


@contextmanager
def in_use(url: str) -> Iterator[Limiter]:
    """Some limits, held and used."""
    with ExitStack() as stack:
        limiter = stack.enter_context(Limiter(url))
        for key in "aab":
            asked = (
                Slots(f"key:{key}", 5),
                Window(f"key:{key}", "requests", 100),
                Window("team:t", "tokens", 10_000, per=3600).cost(100),
                Slots("user:ü{x}", 9, tag="org:o"),
            )
            stack.enter_context(limiter.acquire(*asked))
        with limiter.acquire(Slots("key:idle", 5)):
            pass
        yield limiter


def rows(text: str) -> set[tuple[str, str, int]]:
    return {(row["subject"], row["meter"] or row["kind"], row["used"]) for row in json.loads(text)}


def test_a_server_is_shown_as_json(server: Server, call: Pipe) -> None:
    with in_use(server.url):
        server.command("SET", "pyslot:v1:{x}:s", "of the wrong type")
        server.command("SET", "pyslot:v1:{x}:probe", "no limit")
        done = call("top", server.url, "--once", "--json")
    assert done.stderr == ""
    assert rows(done.stdout) == HELD
    by = {(row["subject"], row["kind"]): row for row in json.loads(done.stdout)}
    assert by["user:ü{x}", "slots"]["tag"] == "org:o"
    assert 0 < by["key:a", "slots"]["reset_after"] <= 60
    assert 3500 < by["team:t", "window"]["reset_after"] <= 3600
    assert by["team:t", "window"]["per"] == 3600


def test_a_cluster_is_shown_as_a_whole(cluster: Cluster, call: Pipe) -> None:
    with in_use(cluster.url):
        assert rows(call("top", cluster.url, "--once", "--json").stdout) == HELD
        assert rows(call("top", f"valkey+cluster://{cluster.address}", "--json").stdout) == HELD


@pytest.mark.parametrize("server_name", ["valkey-9.1"])
def test_a_pipe_gets_plain_text_of_80_columns_sorted_as_asked(server: Server, pipe: Pipe) -> None:
    with in_use(server.url):
        by_use = pipe("top", server.url).stdout
        by_name = pipe("top", "--sort", "subject", PYSLOT_URL=server.url).stdout
    assert "\x1b" not in by_use
    assert max(map(len, by_use.splitlines())) <= 80
    assert [line.split()[0] for line in by_use.splitlines()[1:3]] == ["team:t", "user:ü{x}"]
    assert [line.split()[0] for line in by_name.splitlines()[1:]] == sorted(subject for subject, _, _ in HELD)


@pytest.mark.parametrize("server_name", ["valkey-9.1"])
def test_a_terminal_gets_a_live_view_with_keys(server: Server, terminal: Callable[..., Terminal]) -> None:
    with in_use(server.url) as limiter:
        shown = terminal("top", server.url, "--every", "0.2")
        shown.read_until(lambda text: "by used" in text and "300" in text)
        limiter.charge(Window("team:new", "tokens", None).cost(4321))
        shown.read_until(lambda text: "4,321" in text)
        assert not shown.echoes()  # or keys would stand in the picture
        shown.press("s")
        shown.read_until(lambda text: "by reset" in text)
        shown.press("q")
        seen = shown.finish()
    assert seen.status == 0
    assert seen.echoes
    assert "\x1b[?25h" in seen.text[-20:]  # the cursor is back


@pytest.mark.parametrize("server_name", ["valkey-9.1"])
def test_a_live_view_outlives_a_silent_server(server: Server, terminal: Callable[..., Terminal]) -> None:
    with in_use(server.url):
        shown = terminal("top", server.url, "--every", "0.1", "--patience", "0.2")
        shown.read_until(lambda text: "300" in text)
        server.pause()
        try:
            shown.read_until(lambda text: "no answer, trying again" in text)
        finally:
            server.resume()
        shown.text = ""
        shown.read_until(lambda text: "by used" in text)
        shown.press("q")
        assert shown.finish().status == 0


def test_a_walk_over_many_keys_goes_on_from_look_to_look(get_server: GetServer) -> None:
    server = get_server("valkey-9.1")
    server.command("EVAL", _OTHERS, 0)
    with in_use(server.url), servers(server.url, 5.0) as found:
        view = View(found, "pyslot")
        parts = []
        for _ in range(3):
            view.refresh(0)
            parts.append(view.part)
        assert 0 < parts[0] < parts[1] < parts[2] < 0.5
        while view.round == 0:
            some = view.refresh(0.1)
        assert {(row.named.subject, row.named.meter or "slots", row.used) for row in some} == HELD


def test_it_asks_a_server_little_at_a_time(get_server: GetServer, pipe: Pipe) -> None:
    server = get_server("valkey-9.1")
    server.command("EVAL", _OTHERS, 0)
    server.command("CONFIG", "RESETSTAT")
    with in_use(server.url):
        pipe("top", server.url, "--once")
    stats = {
        line.partition(":")[0].removeprefix("cmdstat_"): int(line.partition("calls=")[2].partition(",")[0])
        for line in server.command("INFO", "commandstats").splitlines()
        if line.startswith("cmdstat_")
    }
    assert 20 <= stats["scan"] <= 80
    assert "keys" not in stats
    # One call for the limits of each step, at most: few steps find any.
    assert stats["evalsha"] <= 4 * 2 + 1 + 8  # an EVAL is the second try of one whose script was not known yet
