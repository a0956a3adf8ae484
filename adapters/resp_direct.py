"""The lowest public calls of both libraries: a connection of the client's pool, a packed command, its reply.

What a client's `execute_command` does beyond that (tries of its own, callbacks, metrics) costs about a third of a call,
and more on an event loop, where the libraries pack commands in Python. So it is left out where the client is a plain
one; wherever anything goes wrong the call is taken up again through `execute_command`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias

from pyslot.adapters.base import words
from pyslot.loader import Call

Client: TypeAlias = Any
Landed: TypeAlias = Callable[[Sequence[int] | Exception], None]


class Errors(NamedTuple):
    """The classes of a library's errors that a connection raises without closing itself."""

    response: type[Exception]
    """The server declined; the connection is as good as before."""
    read_only: type[Exception]
    """One of those: the server is no master any more, so the connection leads to the wrong one."""


class Direct(NamedTuple):
    """What the two libraries do differently here."""

    pack: Callable[[Any], bytes]
    """The packer in C. It gets no numbers: where a signal's handler raises while it prints one, it crashes."""
    errors: Errors
    named: tuple[str, ...]
    """What a pool wants to be told when it gives a connection."""


class Line:
    """A client's pool, for blocking calls. Safe to share between threads."""

    def __init__(self, pool: Client, direct: Direct, *, keep: bool) -> None:
        """`keep`: put connections aside between calls, which a pool of our own allows: the way to it costs a call
        a fifth. The pool knows nothing of those, so all calls go through here then, also those that are sent again."""
        self._pack = direct.pack
        self._ask_pool = partial(pool.get_connection, *direct.named) if direct.named else pool.get_connection
        self._release = pool.release
        self._take = self._next if keep else self._ask_pool
        self._put = self._aside if keep else self._release
        self._errors = direct.errors
        self.keeps = keep
        self._free: list[Client] = []
        self._asking: list[None] = []
        """As long as the number of those who ask the pool: what is given back now is for them."""

    def run(self, call: Call) -> Sequence[int]:
        reply: Sequence[int] = self.ask(*words(b"EVALSHA", call.script.sha, call))
        return reply

    def ask(self, *command: str | bytes) -> Any:  # noqa: ANN401 - depends on the command
        packed = self._pack(command)
        connection = self._take()
        try:
            connection.send_packed_command((packed,))
            reply = connection.read_response()
        except self._errors.response as error:
            self._forget(connection) if isinstance(error, self._errors.read_only) else self._release(connection)
            raise
        except BaseException:
            # A signal's handler may raise where a connection does not close itself, the reply still on its way.
            self._forget(connection)
            raise
        self._put(connection)
        return reply

    def _next(self) -> Client:
        try:
            return self._free.pop()
        except IndexError:
            return self._ask()

    def _ask(self) -> Client:
        self._asking.append(None)
        try:
            # Somebody may have put one aside before he could know that it is wanted.
            return self._free.pop() if self._free else self._ask_pool()
        except IndexError:
            return self._ask_pool()
        finally:
            self._asking.pop()

    def _aside(self, connection: Client) -> None:
        if self._asking:
            self._release(connection)
            return
        self._free.append(connection)
        if self._asking:  # since a moment ago, by somebody who has not seen it
            self._drop()

    def _forget(self, connection: Client) -> None:
        """Close it, and with it what is put aside: that is connected to the same server, and may be of no more use."""
        connection.disconnect()
        self._release(connection)
        self._drop(close=True)

    def _drop(self, *, close: bool = False) -> None:
        """Give back to the pool what is put aside."""
        with suppress(IndexError):  # others take as well
            while True:
                connection = self._free.pop()
                if close:
                    connection.disconnect()
                self._release(connection)


class AsyncLine:
    """The same on an event loop, and for many calls at once."""

    def __init__(self, pool: Client, direct: Direct, *, keep: bool) -> None:
        self._pack = direct.pack
        self._take = pool.get_connection
        self._named = direct.named
        self._release = pool.release
        self._errors = direct.errors
        self.keeps = keep
        self._free: list[Client] = []
        self._asking = 0

    async def run(self, call: Call) -> Sequence[int]:
        reply: Sequence[int] = await self.ask(*words(b"EVALSHA", call.script.sha, call))
        return reply

    async def ask(self, *command: str | bytes) -> Any:  # noqa: ANN401 - depends on the command
        packed = self._pack(command)
        connection = self._free.pop() if self._free else await self._next()
        try:
            await connection.send_packed_command(packed)
            reply = await connection.read_response()
        except self._errors.response as error:
            await self._put(connection, good=not isinstance(error, self._errors.read_only))
            raise
        except BaseException:
            await self._put(connection, good=False)
            raise
        await self._put(connection)
        return reply

    async def run_many(self, calls: Sequence[Call], landed: Landed) -> None:
        """One write; then each reply, or the server's error, as it comes in."""
        packed = [self._pack(tuple(words(b"EVALSHA", call.script.sha, call))) for call in calls]
        connection = self._free.pop() if self._free else await self._next()
        good = True
        try:
            await connection.send_packed_command(packed)
            read = connection.read_response
            for _ in calls:
                try:
                    landed(await read())
                except self._errors.response as error:
                    good = good and not isinstance(error, self._errors.read_only)
                    landed(error)
        except BaseException:
            await self._put(connection, good=False)
            raise
        await self._put(connection, good=good)

    async def _next(self) -> Client:
        self._asking += 1
        try:
            return await self._take(*self._named)
        finally:
            self._asking -= 1

    async def _put(self, connection: Client, *, good: bool = True) -> None:
        if good and self.keeps and not self._asking:
            self._free.append(connection)
            return
        leaving, self._free = [connection, *self._free], []
        for each in leaving:
            if not good:
                await each.disconnect(nowait=True)
            await self._release(each)


def is_plain(client: Client, kind: Client) -> bool:
    """False for a client that somebody made more of: a subclass, one whose calls are traced, cached, or all on one
    connection. Those keep what they are: their own `execute_command` is called."""
    execute = kind.__dict__.get("execute_command")
    # Where it was written, which unlike its name a decorator can't make its own.
    if type(execute) is not FunctionType or execute.__globals__.get("__name__") != kind.__module__:
        return False
    if type(client) is not kind or "execute_command" in vars(client):
        return False
    one = client.connection is not None or getattr(client, "single_connection_client", False)
    return not one and getattr(client.connection_pool, "cache", None) is None
