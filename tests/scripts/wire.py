"""A connection that runs scripts and plain commands, many in one round trip."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import hiredis

from pyslot.loader import load
from tests.servers.process import Server

SCRIPTS = load()

T = TypeVar("T")
Command: TypeAlias = tuple[bytes | str | int, ...]


class Wire:
    """One connection (RESP2). Replies are bytes, integers and lists; an error is a value, `hiredis.ReplyError`."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection((server.host, server.port), timeout=30)
        self._reader = hiredis.Reader()

    def close(self) -> None:
        self._socket.close()

    def many(self, commands: Iterable[Command]) -> list[Any]:
        packed = [hiredis.pack_command(command) for command in commands]  # type: ignore[arg-type]
        self._socket.sendall(b"".join(packed))
        return [self._read() for _ in packed]

    def run(self, *command: bytes | str | int) -> Any:  # noqa: ANN401 - depends on the command
        (reply,) = self.many([command])
        return reply

    def script(self, name: str, keys: Sequence[bytes | str], *args: bytes | str | int) -> Any:  # noqa: ANN401 - as above
        return self.run(*evaluate(name, keys, args))

    def _read(self) -> Any:  # noqa: ANN401 - depends on the command
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(data)
        return reply


def evaluate(name: str, keys: Sequence[bytes | str], args: Sequence[bytes | str | int]) -> Command:
    """The EVAL of a script of the contract."""
    return (b"EVAL", SCRIPTS[name].text, len(keys), *keys, *args)


@contextmanager
def connect(server: Server) -> Iterator[Wire]:
    wire = Wire(server)
    try:
        yield wire
    finally:
        wire.close()


def chunks(values: Sequence[T], size: int) -> list[Sequence[T]]:
    """A flat list as records of one length."""
    assert len(values) % size == 0
    return [values[at : at + size] for at in range(0, len(values), size)]
