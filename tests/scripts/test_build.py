"""The committed scripts are those built from the sources, touch their KEYS alone, and run few commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from shutil import copytree

import pytest

from pyslot.model import HOUR
from tests.conftest import GetServer
from tests.scripts.readme import SCRIPTS_FOLDER, uses
from tests.scripts.wire import SCRIPTS, Command, Wire, connect, evaluate
from tests.servers.process import Server

BUILD = SCRIPTS_FOLDER.parent / "tools" / "build_scripts.py"
USES = uses()
RUNS_READ_ONLY = ("redis-7.0", "redis-8.2", "valkey-8.1", "valkey-9.1")


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()}


# The files


@pytest.mark.skipif(not BUILD.exists(), reason="only a checkout has the tool that builds the scripts")
def test_the_committed_scripts_are_those_built_from_the_sources(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / BUILD.name).write_text(BUILD.read_text("utf-8"), "utf-8")
    copytree(SCRIPTS_FOLDER / "v1" / "src", tmp_path / "scripts" / "v1" / "src")
    subprocess.run([sys.executable, tmp_path / "tools" / BUILD.name], check=True)
    committed = files(SCRIPTS_FOLDER)
    del committed["README.md"]
    assert files(tmp_path / "scripts") == committed


def test_the_folder_holds_the_contract_and_nothing_else() -> None:
    shared = {"clock", "decide", "outcomes", "permits", "slots", "window"}
    wanted = {"README.md", "manifest.json", *(f"v1/{name}.lua" for name in SCRIPTS)}
    assert set(files(SCRIPTS_FOLDER)) == wanted | {f"v1/src/{name}.lua" for name in shared | set(SCRIPTS)}


def test_servers_know_the_scripts_by_the_digests_of_the_manifest(server: Server) -> None:
    manifest = json.loads((SCRIPTS_FOLDER / "manifest.json").read_text("utf-8"))
    with connect(server) as wire:
        for name, entry in manifest["v1"].items():
            assert wire.run("SCRIPT", "LOAD", SCRIPTS[name].text) == entry["sha1"].encode()


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_says_its_keys_arguments_and_reply(name: str) -> None:
    text = SCRIPTS[name].text.decode()
    first, second, third, *rest = text.splitlines()
    assert first == f"-- Built from src/{name}.lua; v1 of the contract in scripts/README.md."
    assert second.startswith(f"-- {name}: ")
    assert third.startswith("-- KEYS  ")
    assert rest[0].startswith("-- ARGV  ")
    assert any(line.startswith("-- Reply ") for line in rest)
    assert all(len(line) <= 120 for line in text.splitlines())


# Keys


KEY_USES = (
    r"local KEYS, ARGV, call, keys = KEYS, ARGV, redis\.call, #KEYS",
    r"for k, key in ipairs\(KEYS\)",
    r"\blocal key(?:, \w+)* = KEYS\[k\]",
    r"\bcall\('[A-Z]+', (?:key|KEYS\[k\]|unpack\(KEYS\))(?=[,)])",
    r"\bcall\('TIME'\)",
)
"""All that a script does with keys: takes them from KEYS, hands them on, and gives them to a command as they are."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_command_is_about_a_declared_key(name: str) -> None:
    text = re.sub(r"--.*", "", SCRIPTS[name].text.decode())
    for use in KEY_USES:
        text = re.sub(use, "", text)
    assert re.findall(r".*(?:\bkey\b|KEYS|\bp?call\b|loadstring|_G).*", text) == []


# Commands

OURS = ("eval", "info", "config", "config|resetstat")
NOW, LENGTH = 1_000_000, 50
KEYS = {"s": ("{t}:s:1", "{t}:s:2"), "w": ("{t}:w:1", "{t}:w:2")}
ADMISSIONS = ("acquire", "reserve", "admit")
SCRIPTS_OF = {
    "s": ("acquire", "admit", "renew", "release", "finish", "count", "peek", "reset"),
    "w": ("reserve", "admit", "settle", "finish", "peek", "reset"),
}


def call(name: str, kind: str, now: int, ids: list[str], span: int = LENGTH) -> Command:
    """A call of a script for two keys of one kind."""
    rules: dict[str, list[str | int]] = {
        "acquire": ["-", span],
        "reserve": ["-", span],
        "admit": [kind, "-", span],
        "renew": [span],
        "settle": [span],
        "finish": ["s" if kind == "s" else span],
        "peek": ["s" if kind == "s" else span],
    }
    rule = rules.get(name, [])
    head: list[str | int] = [now, "", *rule, *rule] if name in ADMISSIONS else [now, *rule, *rule]
    units = 2 if name in ADMISSIONS else 3
    figures = (units, units) if kind == "w" else ()
    if name == "reset":
        head = []
    if name not in ("count", "peek", "reset"):
        for id in ids:
            head += (id, *figures)
    return evaluate(name, KEYS[kind], head)


def states(kind: str, ids: list[str]) -> Iterator[list[Command]]:
    """What two keys may hold before a call: nothing, the permits, another's with leases that ended, rubbish."""
    yield []
    yield [call("admit", kind, NOW, ids)]
    if kind == "s":
        yield [call("admit", kind, NOW, ["x"]), *[("ZADD", key, NOW - 9, "y") for key in KEYS[kind]]]
    else:
        yield [call("admit", kind, NOW, ["x"])]
        yield [("HSET", key, "n", 1) for key in KEYS[kind]]


def ran(wire: Wire, before: list[Command], command: Command) -> Counter[str]:
    """How often a script call runs each command."""
    wire.run("FLUSHALL")
    wire.many(before)
    wire.run("CONFIG", "RESETSTAT")
    reply = wire.run(*command)
    assert isinstance(reply, list), reply
    lines = re.findall(r"cmdstat_([\w|]+):calls=(\d+)", wire.run("INFO", "commandstats").decode())
    return Counter({name.upper(): int(calls) for name, calls in lines if name not in OURS})


@pytest.mark.parametrize("server_name", ["redis-6.2", "valkey-9.1"])
def test_every_call_runs_the_commands_the_contract_lists(server: Server) -> None:
    used = {name: {"TIME"} & USES[name].commands for name in SCRIPTS}
    most: dict[str, dict[str, int]] = {name: {} for name in SCRIPTS}
    few, many = ["p"], [f"p{i}" for i in range(40)]
    with connect(server) as wire:
        for kind, names in SCRIPTS_OF.items():
            # Live; ended; and started in the future. A longer lease makes a key live longer.
            for name, now, span in product(names, (NOW, NOW + LENGTH, NOW - 1), (LENGTH, 9 * HOUR)):
                for one, more in zip(states(kind, few), states(kind, many), strict=True):
                    found = ran(wire, one, call(name, kind, now, few, span))
                    batch = ran(wire, more, call(name, kind, now, many, span))
                    used[name] |= set(found) | set(batch)
                    found["ZMSCORE"] += found.pop("ZSCORE", 0)  # the same of one and of many
                    assert found == batch, (name, "40 permits take as many commands as one")
                    per_key = found.total() if name == "reset" else -(-found.total() // 2)
                    most[name][kind] = max(per_key, most[name].get(kind, 0))
    assert used == {name: use.commands for name, use in USES.items()}
    assert most == {name: use.most for name, use in USES.items()}


def test_the_usual_call_runs_as_many_commands_as_the_contract_says(get_server: GetServer) -> None:
    with connect(get_server("valkey-9.1")) as wire:
        for kind, names in SCRIPTS_OF.items():
            for name in names:
                id = "new" if name in ADMISSIONS else "p"
                found = ran(wire, [call("admit", kind, NOW, ["p"])], call(name, kind, NOW, [id]))
                assert -(-found.total() // 2) == USES[name].usual[kind], (name, kind)


@pytest.mark.parametrize("server_name", RUNS_READ_ONLY)
def test_what_is_read_only_runs_as_read_only(server: Server) -> None:
    with connect(server) as wire:
        wire.many(call("admit", kind, NOW, ["p"]) for kind in KEYS)
        cases: list[tuple[str, tuple[str, ...], tuple[str | int, ...]]] = [
            ("count", KEYS["s"], (NOW,)),
            ("peek", KEYS["s"] + KEYS["w"], (NOW, "s", "s", LENGTH, LENGTH)),
            ("acquire", KEYS["s"], (NOW - 1, "dry", 5, LENGTH, 5, LENGTH, "a")),
            ("reserve", KEYS["w"], (NOW - 1, "dry", 5, LENGTH, 5, LENGTH, "a", 1, 1)),
            ("admit", KEYS["s"], (NOW + LENGTH, "dry", "s", 5, LENGTH, "s", 5, LENGTH, "a")),
        ]
        for name, keys, args in cases:
            usual = wire.script(name, keys, *args)
            assert usual
            assert wire.run("EVAL_RO", SCRIPTS[name].text, len(keys), *keys, *args) == usual
            assert wire.run("EVALSHA_RO", SCRIPTS[name].sha, len(keys), *keys, *args) == usual
