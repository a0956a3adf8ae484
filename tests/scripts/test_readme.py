"""scripts/README.md is true: every session in it gives the replies it shows, and its tables are what the scripts do."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from tests.scripts.readme import Example, rows, sessions, uses
from tests.scripts.wire import SCRIPTS, Command, Wire, connect, evaluate
from tests.servers.process import Server


def words(example: Example) -> Command:
    """The command with scripts in place of their names."""
    known = {f"${name}": script.sha for name, script in SCRIPTS.items()}
    known |= {f"${name}.lua": script.text for name, script in SCRIPTS.items()}
    return tuple(known.get(word, word) for word in example.command)


def shown(reply: Any) -> str:  # noqa: ANN401 - whatever a command returns
    if isinstance(reply, list):
        return " ".join(shown(part) for part in reply)
    if isinstance(reply, hiredis.ReplyError):
        return f"(error) {reply}"
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def load(wire: Wire) -> None:
    loaded = wire.many((b"SCRIPT", b"LOAD", script.text) for script in SCRIPTS.values())
    assert loaded == [script.sha for script in SCRIPTS.values()]


def test_every_session_gives_the_replies_it_shows(server: Server) -> None:
    with connect(server) as wire:
        for session in sessions():
            load(wire)
            for example in session:
                reply = shown(wire.run(*words(example)))
                if example.reply.startswith("(error)"):
                    # Redis 6.2 adds nothing in front of a script's own error; texts after the prefix differ.
                    assert reply.startswith(example.reply), example.command
                else:
                    assert reply == example.reply, example.command


def test_the_sessions_show_every_script() -> None:
    said = {word for session in sessions() for example in session for word in example.command}
    assert {f"${name}" for name in SCRIPTS} <= said


def test_the_tables_name_every_script() -> None:
    listed = rows("script | KEYS")
    assert {row[0].strip("`"): row[3] == "yes" for row in listed} == {
        name: script.read_only for name, script in SCRIPTS.items()
    }
    assert set(uses()) == set(SCRIPTS)
    described = [row[0].strip("`") for row in rows("script | ARGV")]
    assert described == ["acquire", "reserve", "admit"]


@pytest.mark.parametrize("server_name", ["redis-6.2", "redis-7.0", "redis-8.2", "valkey-9.1"])
def test_a_user_with_only_the_listed_commands_may_do_all(server: Server) -> None:
    sample = {
        "acquire": (["p:s"], (1000, "", 5, 50, "a", "b")),
        "renew": (["p:s"], (1001, 50, "a")),
        "release": (["p:s"], (1002, "a")),
        "count": (["p:s"], ("",)),
        "reserve": (["p:w"], (1000, "", 9, 50, "a", 2)),
        "settle": (["p:w"], (1001, 50, "a", 1)),
        "admit": (["p:s", "p:w"], (5000, "", "s", 5, 50, "w", 9, 50, "c", 2)),  # prunes, and rolls the window
        "finish": (["p:s", "p:w"], (5001, "s", 50, "c", 1)),
        "peek": (["p:s", "p:w"], ("", "s", 50)),
        "reset": (["p:s", "p:w"], ()),
    }
    with connect(server) as boss:
        for name, (keys, args) in sample.items():
            commands = [f"+{command.lower()}" for command in ("EVAL", "EVALSHA", *uses()[name].commands)]
            assert boss.run("ACL", "SETUSER", "app", "reset", "on", ">secret", "~p:*", "-@all", *commands) == b"OK"
            with connect(server) as wire:
                assert wire.run("AUTH", "app", "secret") == b"OK"
                assert isinstance(wire.run(*evaluate(name, keys, args)), list), name
                assert "NOPERM" in str(wire.run("GET", "p:s"))
        boss.run("ACL", "DELUSER", "app")
