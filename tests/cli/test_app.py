"""The command as a whole: help, statuses, and errors of one line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pyslot.cli.app import COMMANDS
from tests.cli.conftest import COMMAND, Pipe, environment
from tests.servers.process import Server


def test_every_command_has_help_within_80_columns(pipe: Pipe, call: Pipe) -> None:
    pages = [pipe(), *(call(name, "--help") for name in COMMANDS)]
    for page in pages:
        assert page.returncode == 0, page.stderr
        assert max(map(len, page.stdout.splitlines())) <= 80, page.stdout
    assert all(f"  {name} " in pages[0].stdout for name in COMMANDS)


@pytest.mark.parametrize(
    "args",
    [("nope",), ("doctor",), ("top", "foo://x"), ("top", "memory://"), ("doctor", "embedded://", "--prefix", "%")],
)
def test_misuse_is_one_line(call: Pipe, args: tuple[str, ...]) -> None:
    done = call(*args)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("Error: ")
    assert done.stdout == ""


def test_a_password_in_a_url_is_never_shown(call: Pipe) -> None:
    for url in ("redis://user:s3cret@localhost:1", "redis://user:s3cr#et@localhost:1/x", "nope://user:s3cret@h"):
        done = call("doctor", url)
        assert "s3cr" not in done.stdout + done.stderr


def test_a_reader_that_leaves_early_is_no_error() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"{' '.join(COMMAND)} scripts show admit | true"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert done.stderr == ""


def test_a_bare_install_names_the_extra() -> None:
    code = "import sys; sys.modules['click'] = None; from pyslot.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 1
    assert done.stderr == "Error: the command line needs the package 'click': pip install 'pyslot-limits[cli]'\n"


@pytest.mark.parametrize("server_name", ["valkey-9.1"])
def test_bench_measures_and_leaves_nothing_behind(server: Server, pipe: Pipe) -> None:
    done = pipe("bench", server.url, "--seconds", "0.2", "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert len(results) == 4
    assert all(0 < each["median"] <= each["slow"] and each["rate"] > 0 for each in results)
    assert server.command("DBSIZE") == 0
