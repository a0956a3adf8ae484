"""What the errors of redis-py and valkey-py mean. The two are forks, so one table serves both."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto
from time import monotonic
from typing import Any

from pyslot.adapters.base import words
from pyslot.errors import StoreBusy, StoreError, StoreUnavailable
from pyslot.loader import Call


class Verdict(Enum):
    """What an error says about the call that met it."""

    NOSCRIPT = auto()
    """The server does not have the script: send its text."""
    FULL = auto()
    """Every connection of the pool is taken: nothing was sent, and nothing is wrong with the server."""
    DROPPED = auto()
    """The connection is gone; a new one may work, and scripts may be sent twice."""
    READONLY = auto()
    """A replica, or a master that has become one: its pooled connections are of no more use."""
    REFUSED = auto()
    """There was no connection: nothing was sent."""
    AWAY = auto()
    """The server is there, but not ready, or too slow."""
    WRONGTYPE = auto()
    DECLINED = auto()


_CODES = {
    "NOSCRIPT": Verdict.NOSCRIPT,
    "READONLY": Verdict.READONLY,
    "WRONGTYPE": Verdict.WRONGTYPE,
    "OOM": Verdict.DECLINED,
    **dict.fromkeys(("CLUSTERDOWN", "LOADING", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS", "BUSY"), Verdict.AWAY),
}
# Redis 6.2 puts what a command of a script met behind a text of its own. Elsewhere only the first word counts: what
# follows may quote a user's name.
_WRAPPED = re.compile(rf"^(?:ERR )?Error running script .*?\b({'|'.join(_CODES)})\b", re.DOTALL)
_WAITED = "No connection available."
"""A blocking pool's words for "full, and I have waited"."""
_CONNECTING = " connecting to "
"""What both libraries say when no connection could be made."""
_NOT_AN_OUTAGE = ("same key slot", "not enabled", "argument", "querystring")
"""Parts of what the cluster clients say of a call or a set-up that can't work, under the class of an outage."""
_GAUGE, _WINDOW = b":s", b":w:"
_TORN = (AttributeError, KeyError, IndexError)
_LONGEST_PAUSE = 0.1
"""Seconds between two tries while a trouble may pass; the first follow each other in milliseconds."""
_TYPES = {_GAUGE: "zset", _WINDOW: "hash"}


class ErrorTable:
    """The classes of one client library, in the order in which they are asked."""

    def __init__(self, exceptions: Any, cluster_exception: type[Exception]) -> None:  # noqa: ANN401 - a module
        self._library = cluster_exception.__module__.partition(".")[0]
        self._cluster = cluster_exception
        self._response = exceptions.ResponseError
        self._rows: tuple[tuple[type[Exception], Verdict], ...] = (
            (exceptions.NoScriptError, Verdict.NOSCRIPT),
            (exceptions.AuthenticationError, Verdict.DECLINED),  # this, too, is a ConnectionError
            (exceptions.AuthorizationError, Verdict.DECLINED),
            (exceptions.BusyLoadingError, Verdict.AWAY),
            (exceptions.MaxConnectionsError, Verdict.FULL),
            (exceptions.ConnectionError, Verdict.DROPPED),
            (exceptions.TimeoutError, Verdict.AWAY),
            (exceptions.ReadOnlyError, Verdict.READONLY),
            (exceptions.ClusterError, Verdict.AWAY),  # CLUSTERDOWN, MASTERDOWN, and "TTL exhausted." while keys move
            (exceptions.TryAgainError, Verdict.AWAY),
            (exceptions.InvalidResponse, Verdict.AWAY),
            (OSError, Verdict.AWAY),
        )

    def judge(self, error: Exception) -> Verdict | None:
        """None is for what is neither the server's nor the network's doing: a bug, to be seen as it is."""
        text = str(error)
        for kind, verdict in self._rows:
            if isinstance(error, kind):
                if verdict is Verdict.DROPPED and text in {"Too many connections", _WAITED}:
                    return Verdict.FULL
                return Verdict.REFUSED if verdict is Verdict.DROPPED and _CONNECTING in text else verdict
        if isinstance(error, self._cluster):
            return Verdict.DECLINED if any(part in text for part in _NOT_AN_OUTAGE) else Verdict.AWAY
        if isinstance(error, self._response):
            wrapped = _WRAPPED.match(text)
            return _CODES.get(wrapped[1] if wrapped else text.partition(" ")[0], Verdict.DECLINED)
        return Verdict.AWAY if self._torn(error) else None

    def _torn(self, error: Exception) -> bool:
        """True where a client found a connection or a node gone between two of its own steps.

        Seen while masters die: both libraries then look up what another task or thread has just removed.
        """
        if not isinstance(error, _TORN) or (trace := error.__traceback__) is None:
            return False
        while trace.tb_next is not None:
            trace = trace.tb_next
        where = str(trace.tb_frame.f_globals.get("__name__"))
        return where.startswith(f"{self._library}.") and where.endswith((".cluster", ".connection"))


class WrongType(Exception):
    """A key of the call holds something else; which one is found by asking the server."""


class Recovery:
    """What to do about the errors of one call. Pure, so that both colours share it."""

    def __init__(self, call: Call, where: str, began: float, deadline: float, *, drops: int, owned: bool) -> None:
        """`drops`: how many dropped connections to put up with. `owned`: the client is ours, and has no tries."""
        self.command: tuple[str, bytes] = ("EVALSHA", call.script.sha)
        self._call = call
        self._where = where
        self._deadline = deadline
        self._end = began + deadline
        self._drops = drops
        self._owned = owned
        self._pause = 0.001

    @property
    def words(self) -> list[str | bytes]:
        """What is to be sent."""
        return words(*self.command, self._call)

    @property
    def left(self) -> float:
        return max(self._end - monotonic(), 0.001)

    def next(self, error: Exception, verdict: Verdict | None) -> float:
        """Return the seconds to wait before `command` is sent again, or raise what the caller shall see."""
        if verdict is None:
            raise error
        text = _text(error)
        match verdict:
            case Verdict.NOSCRIPT if self.command[0] == "EVALSHA":
                self.command = ("EVAL", self._call.script.text)
                return 0
            case Verdict.DROPPED if self._drops and monotonic() < self._end:
                self._drops -= 1
                return 0
            case Verdict.FULL:
                self._pause = min(2 * self._pause, 0.02)
                if str(error) != _WAITED and monotonic() + self._pause < self._end:
                    return self._pause
                text = f"no free connection within {self._deadline:g} s, the client's pool is full ({text})"
                raise StoreBusy(f"{self._where}: {text}") from error
            case Verdict.AWAY | Verdict.READONLY | Verdict.REFUSED:
                # Fail-overs, restarts and moves pass. A client that was passed in connects again by its own rules.
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
                patient = verdict is not Verdict.REFUSED or self._owned
                if patient and monotonic() + self._pause < self._end:
                    return self._pause
            case Verdict.WRONGTYPE:
                raise WrongType from error
        if verdict in {Verdict.DECLINED, Verdict.NOSCRIPT}:
            raise StoreError(f"{self._where}: {text}") from error
        raise StoreUnavailable(f"{self._where}: {text or f'no answer within {self._deadline:g} s'}") from error


def wrong_type(where: str, call: Call, types: Iterable[str | bytes]) -> StoreError:
    """Say which keys hold what they should not, given the types of the call's keys as far as the server told."""
    found = []
    for key, answer in zip(call.keys, types, strict=False):
        held = answer.decode() if isinstance(answer, bytes) else answer
        tail = key.partition(b"}")[2]
        wanted = next((kind for start, kind in _TYPES.items() if tail.startswith(start)), held)
        if held not in {wanted, "none"}:
            found.append(f"the key {key.decode(errors='backslashreplace')!r} holds a {held} where a {wanted} belongs")
    keys = ", ".join(repr(key.decode(errors="backslashreplace")) for key in call.keys)
    return StoreError(f"{where}: WRONGTYPE: {'; '.join(found) or f'one of the keys {keys}'}")


def _text(error: Exception) -> str:
    """The client's words, with the code its class stands for; a hint where the client says little."""
    text, name = str(error), type(error).__name__
    if name == "MovedError" or text.startswith("MOVED "):
        return f"this server is part of a cluster: use the +cluster:// URL or a cluster client ({text})"
    if name == "ClusterCrossSlotError" or text.startswith("CROSSSLOT"):
        return f"the keys of one call are in several hash slots: set group_by_slot=True ({text})"
    plain = name in {"ResponseError", "ConnectionError", "TimeoutError"} or name.endswith("ClusterException")
    return text if plain or not text else f"{name}: {text}"
