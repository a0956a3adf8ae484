"""`pyslot doctor` says what is wrong with a real server, and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pyslot import Limiter, Slots
from tests.cli.conftest import Pipe, Terminal
from tests.conftest import PrivateServer
from tests.servers.process import Cluster, Server


def levels(text: str) -> dict[str, str]:
    """The worst level of each line, by its name."""
    found: dict[str, str] = {}
    for row in json.loads(text):
        found[row["what"]] = max(found.get(row["what"], ""), row["level"], key=["", "good", "warn", "bad"].index)
        assert bool(row["advice"]) is (row["level"] != "good"), row
    return found


def test_a_server_without_persistence_is_good_but_for_that(server: Server, call: Pipe) -> None:
    done = call("doctor", server.url, "--json")
    found = levels(done.stdout)
    # The tests' machine may be slow or swap.
    assert {what for what, level in found.items() if level != "good"} - {"PING", "EVALSHA"} == {"persistence"}
    assert {"version", "topology", "role", "eviction", "memory", "replicas", "scripts", "clock", "names"} <= set(found)
    assert done.returncode == 1
    assert done.stderr == ""
    assert server.command("DBSIZE") == 0  # it leaves nothing behind


def test_a_cluster_is_looked_at_as_a_whole(cluster: Cluster, call: Pipe) -> None:
    done = call("doctor", cluster.url)
    assert "3 primaries, 0 replicas" in done.stdout
    assert "all 16384 hash slots served" in done.stdout
    assert "(all 3)" in done.stdout
    assert "bad  " not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_cluster_asked_as_one_server_is_told_apart(cluster: Cluster, call: Pipe) -> None:
    done = call("doctor", f"valkey://{cluster.address}")
    assert done.returncode == 2
    assert "put +cluster into the URL" in done.stdout


def test_all_that_may_be_wrong_is_found(private_server: PrivateServer, call: Pipe) -> None:
    server = private_server("valkey-9.1", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with Limiter(server.url) as plain, Limiter(server.url, hash_names=True) as hashed:
        plain.try_acquire(Slots("key:sk-1", 5))
        hashed.try_acquire(Slots("key:sk-1", 5))
    server.command("SET", "pyslot:v1:{x}:other", "1")
    done = call("doctor", server.url, "--json")
    assert done.returncode == 2
    found = levels(done.stdout)
    assert (found["eviction"], found["names"]) == ("bad", "bad")
    assert "'key:sk-1'" in done.stdout
    assert "1 keys under the prefix are no limits" in done.stdout


def test_hashed_and_plain_names_of_different_subjects_are_to_look_at(private_server: PrivateServer, call: Pipe) -> None:
    server = private_server("redis-8.2")
    with Limiter(server.url) as plain, Limiter(server.url, hash_names=True) as hashed:
        plain.try_acquire(Slots("a", 5))
        hashed.try_acquire(Slots("b", 5))
    assert levels(call("doctor", server.url, "--json").stdout)["names"] == "warn"


@pytest.mark.parametrize("name", ["redis-6.2", "valkey-9.1"])
def test_a_user_who_lacks_a_right_is_told_which_and_what_to_grant(
    name: str, private_server: PrivateServer, call: Pipe
) -> None:
    server = private_server(name)
    server.command("ACL", "SETUSER", "app", "on", ">secret", "~pyslot:*", "+@all", "-zadd", "-config")
    done = call("doctor", f"redis://app:secret@{server.address}", "--json")
    rows = {row["what"]: row for row in json.loads(done.stdout)}
    assert rows["rights"]["level"] == "bad"
    assert "acquire" in rows["rights"]["said"]
    assert "app" in rows["rights"]["said"]
    assert "release" not in rows["rights"]["said"].partition(":")[0]
    # What it advises is enough.
    granted = rows["rights"]["advice"].removeprefix("ACL SETUSER … ").split()
    server.command("ACL", "SETUSER", "app", "reset", "on", ">secret", *granted)
    again = call("scripts", "verify", f"redis://app:secret@{server.address}")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "not told" in again.stdout
    # Who may do no more than that can't see the figures, and is told so.
    rest = call("doctor", f"redis://app:secret@{server.address}", "--json")
    assert levels(rest.stdout) | {"EVALSHA": ""} == {
        "reach": "good",
        "here": "good",
        "figures": "warn",
        "scripts": "good",
        "clock": "good",
        "PING": "warn",
        "EVALSHA": "",
        "names": "warn",
    }
    assert "secret" not in rest.stdout + rest.stderr


def test_a_replica_is_bad(private_server: PrivateServer, call: Pipe) -> None:
    primary, copy = private_server("redis-8.2"), private_server("redis-8.2")
    copy.command("REPLICAOF", primary.host, primary.port)
    done = call("doctor", copy.url)
    assert done.returncode == 2
    assert f"use its primary, {primary.address}" in " ".join(done.stdout.split())


@pytest.mark.parametrize("what", ["doctor", "top", "bench"])
def test_a_server_that_is_not_there_is_one_line(what: str, pipe: Pipe) -> None:
    done = pipe(what, "redis://localhost:1")
    assert done.returncode == 2
    assert "localhost:1" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if what != "doctor":
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("Error: ")


def test_a_silent_server_is_given_up_in_time(private_server: PrivateServer, pipe: Pipe) -> None:
    server = private_server("valkey-9.1")
    server.pause()
    try:
        done = pipe("doctor", server.url, "--patience", "0.3")
    finally:
        server.resume()
    assert done.returncode == 2
    assert "--patience" in done.stdout


def test_it_says_what_it_is_waiting_for(private_server: PrivateServer, terminal: Callable[..., Terminal]) -> None:
    server = private_server("valkey-9.1")
    server.pause()
    try:
        seen = terminal("doctor", server.url, "--patience", "0.5").finish()
    finally:
        server.resume()
    assert "waiting for the server to answer" in seen.text
    assert seen.status == 2
