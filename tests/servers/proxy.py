"""A relay between a client and a server that understands commands, and does to them what networks do.

with Proxy(server.port) as proxy: ...      # proxy.address
proxy.plan(Do.LOSE)                        # the next script call runs, and its reply is lost with the connection

It speaks RESP2 and RESP3, keeps a record of script calls, and passes on whatever nothing is planned for.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import IO, NamedTuple, Self


class Do(Enum):
    """What becomes of one command."""

    PASS = auto()
    LOSE = auto()
    """It runs; then the connection closes in place of the reply."""
    MUTE = auto()
    """It runs; there is never a reply, nor anything else on this connection."""
    HOLD = auto()
    """Neither a reply nor an effect, until `deliver`: a packet that lay about somewhere."""
    CUT = auto()
    """It never runs: the connection closes."""
    SWALLOW = auto()
    """It never runs, and nothing is ever said."""


class Seen(NamedTuple):
    """One script call."""

    words: tuple[bytes, ...]
    did: Do

    @property
    def script(self) -> bytes:
        """The SHA1, or the text."""
        return self.words[1]


class Proxy:
    """Every command goes on as it came, and every reply comes back as it was, unless `plan` says otherwise."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._planned: deque[Do] = deque()
        self._always: Do = Do.PASS
        self._matches: Callable[[Sequence[bytes]], bool] = is_script
        self._held: list[bytes] = []
        self._links: set[socket.socket] = set()
        self.seen: list[Seen] = []
        """Script calls, in the order in which they came."""

    def __enter__(self) -> Self:
        self._socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        # shutdown first: an accept() that is under way would keep the socket open.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.cut()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def plan(self, *what: Do, matches: Callable[[Sequence[bytes]], bool] | None = None) -> None:
        """Do this to the next script calls, one each; those behind them pass. `matches` picks other commands."""
        with self._lock:
            self._planned = deque(what)
            self._matches = matches or is_script

    def always(self, what: Do) -> None:
        """Do this to every script call for which nothing is planned."""
        with self._lock:
            self._always = what

    def deliver(self) -> int:
        """Let the server have now what was held back, and wait until it has run; returns how many commands."""
        with self._lock:
            held, self._held = self._held, []
        for frame in held:
            with socket.create_connection(self._target, 10) as link, link.makefile("rb") as replies:
                link.sendall(frame)
                read_reply(replies)
        return len(held)

    def cut(self) -> None:
        """Close every connection."""
        with self._lock:
            links = list(self._links)
        for link in links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def wait_for(self, count: int, timeout: float = 10) -> None:
        """Until so many script calls have come."""
        end = time.monotonic() + timeout
        while len(self.seen) < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(self.seen)} script calls have come, not {count}")
            time.sleep(0.002)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        # OSError and ValueError: an end was closed, by its owner or by `cut`.
        with contextlib.suppress(OSError, ValueError), client, socket.create_connection(self._target) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._links |= {client, server}
            try:
                with client.makefile("rb") as requests, server.makefile("rb") as replies:
                    while (request := read_request(requests)) and self._one(client, server, replies, *request):
                        pass
                    # What was swallowed or muted: silence, until the client gives up.
                    if request:
                        while client.recv(65536):
                            pass
            finally:
                with self._lock:
                    self._links -= {client, server}

    def _one(
        self, client: socket.socket, server: socket.socket, replies: IO[bytes], frame: bytes, words: tuple[bytes, ...]
    ) -> bool:
        """One command; False where nothing more comes of this connection."""
        what = self._decide(frame, words)
        match what:
            case Do.CUT:
                client.shutdown(socket.SHUT_RDWR)
                return False
            case Do.SWALLOW | Do.HOLD:
                return False
        server.sendall(frame)
        reply = read_reply(replies)
        match what:
            case Do.LOSE:
                client.shutdown(socket.SHUT_RDWR)
                return False
            case Do.MUTE:
                return False
        client.sendall(reply)
        return True

    def _decide(self, frame: bytes, words: tuple[bytes, ...]) -> Do:
        with self._lock:
            what = Do.PASS
            if self._matches(words):
                what = self._planned.popleft() if self._planned else self._always
            if what is Do.HOLD:
                self._held.append(frame)
            if is_script(words):
                self.seen.append(Seen(words, what))
            return what


def is_script(words: Sequence[bytes]) -> bool:
    return words[0].upper() in {b"EVAL", b"EVALSHA"}


def read_request(stream: IO[bytes]) -> tuple[bytes, tuple[bytes, ...]] | None:
    """One command as it came, and its words; None at the end."""
    head = stream.readline()
    if not head.endswith(b"\r\n"):
        return None
    frame, words = [head], []
    for _ in range(int(head[1:])):
        size = stream.readline()
        body = stream.read(int(size[1:]) + 2)
        frame += (size, body)
        words.append(body[:-2])
    return b"".join(frame), tuple(words)


def read_reply(stream: IO[bytes]) -> bytes:
    """One whole reply, RESP2 or RESP3, as it came."""
    head = stream.readline()
    if not head.endswith(b"\r\n"):
        raise OSError("the server closed the connection")
    kind, rest = head[:1], head[1:-2]
    if kind in b"$=!" and rest != b"-1":
        return head + stream.read(int(rest) + 2)
    parts = 0
    if kind in b"*~>":
        parts = max(0, int(rest))
    elif kind in b"%|":
        parts = 2 * int(rest)
    return head + b"".join(read_reply(stream) for _ in range(parts))
