"""`pyslot scripts` hands out the contract, and tests a server by it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from pyslot.adapters.base import open_store
from pyslot.calls import SCRIPTS
from pyslot.cli.verify import verify
from pyslot.loader import Call
from tests.cli.conftest import Pipe
from tests.servers.process import Cluster, Server


def test_every_script_is_listed_with_its_sha1(call: Pipe) -> None:
    listed = {line.split()[0]: line.split()[1] for line in call("scripts", "list").stdout.splitlines()[1:]}
    assert listed == {name: script.sha.decode() for name, script in SCRIPTS.items()}


def test_a_script_is_shown_to_the_byte(pipe: Pipe) -> None:
    text = pipe("scripts", "show", "admit").stdout
    assert hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest().encode() == SCRIPTS["admit"].sha
    wrong = pipe("scripts", "show", "nope")
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)


def test_what_is_exported_is_whole_and_overwrites_nothing(call: Pipe, tmp_path: Path) -> None:
    for _ in range(2):
        assert call("scripts", "export", "here").returncode == 0
    manifest = json.loads((tmp_path / "here/manifest.json").read_text())
    for name, entry in manifest["v1"].items():
        text = (tmp_path / f"here/v1/{name}.lua").read_bytes()
        assert hashlib.sha1(text, usedforsecurity=False).hexdigest() == entry["sha1"]
    assert (tmp_path / "here/README.md").exists()
    (tmp_path / "here/v1/admit.lua").write_text("mine")
    done = call("scripts", "export", "here")
    assert done.returncode == 1
    assert "here/v1/admit.lua is there" in done.stderr
    assert (tmp_path / "here/v1/admit.lua").read_text() == "mine"


def test_a_server_is_verified_and_left_as_it_was(server: Server, call: Pipe) -> None:
    done = call("scripts", "verify", server.url)
    assert done.returncode == 0
    assert [line.split()[1:] for line in done.stdout.splitlines()[1:]] == [["right", "no"]] * len(SCRIPTS)
    assert server.command("DBSIZE") == 0
    assert "no" not in call("scripts", "verify", server.url).stdout.split()


@pytest.mark.parametrize("cluster_name", ["valkey-9.1"])
def test_a_cluster_is_verified(cluster: Cluster, call: Pipe) -> None:
    done = call("scripts", "verify", cluster.url)
    assert done.stdout.count("right") == len(SCRIPTS)
    assert "by 0 of 3" in done.stdout


class _Wrong:
    """A server whose `peek` is off by one."""

    cluster = False

    def __init__(self) -> None:
        self._store = open_store("memory://", 1.0)

    def run(self, call: Call) -> list[int]:
        reply = list(self._store.run(call))
        return [reply[0] + 1, *reply[1:]] if call.script.name == "peek" else reply

    def close(self) -> None: ...


def test_a_wrong_reply_is_found() -> None:
    assert [verdict.script for verdict in verify(_Wrong(), "pyslot") if verdict.fault] == ["peek"]
    assert [verdict for verdict in verify(open_store("memory://", 1.0), "pyslot") if verdict.fault] == []
    assert {verdict.script for verdict in verify(open_store("memory://", 1.0), "pyslot")} == set(SCRIPTS)
