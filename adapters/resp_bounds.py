"""Keeps every step of a blocking call within what is left of the call's deadline.

A client's time-outs are for each wait of its own: for a connection, for its greeting, for a reply, for the next node of
a cluster. One after another they may take many times the deadline.
"""

from __future__ import annotations

import threading
from functools import cache
from math import inf
from time import monotonic
from typing import Any


class _Clock(threading.local):
    """When the call of this thread must have ended."""

    end: float = inf

    def left(self) -> float | None:
        """Seconds left; None for a call without an end."""
        if self.end == inf:
            return None
        left = self.end - monotonic()
        if left <= 0:
            raise TimeoutError  # the built-in one: the clients go on after one of their own
        return left


clock = _Clock()


class _Bounded:
    """Goes before a client's class of connections."""

    _sock: Any
    socket_timeout: float | None
    socket_connect_timeout: float | None

    def _connect(self) -> Any:  # noqa: ANN401 - a socket
        if (left := clock.left()) is not None:
            self.socket_timeout = self.socket_connect_timeout = left
        return super()._connect()  # type: ignore[misc]

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: ANN401 - as the clients'
        # Held by a name of its own, for another thread may close the pool's connections at any moment.
        if (sock := self._sock) is not None and (left := clock.left()) is not None:
            sock.settimeout(left)
        super().send_packed_command(command, check_health)  # type: ignore[misc]


@cache
def bounded(connection: Any) -> Any:  # noqa: ANN401 - a class of connections
    """A class of connections, with every wait bounded."""
    return type(f"Bounded{connection.__name__}", (_Bounded, connection), {})
