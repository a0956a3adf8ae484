"""The lowest public calls of both libraries: a connection of the client's pool, a packed command, its reply.

What a client's `execute_command` does beyond that (tries of its own, callbacks, metrics) costs about a third of a call,
and more on an event loop, where the libraries pack commands in Python. So it is left out where the client is a plain
one; wherever anything goes wrong the call is taken up again through `execute_command`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias

from pyslot.loader import Call

Client: TypeAlias = Any
Landed: TypeAlias = Callable[[Sequence[int] | Exception], None]


class Direct(NamedTuple):
    """What the two libraries do differently here."""

    pack: Callable[[Any], bytes]
    """The packer in C. It gets no numbers: where a signal's handler raises while it prints one, it crashes."""
    response_error: type[Exception]
    """What a connection raises for an error that the server replied."""
    named: tuple[str, ...]
    """What a pool wants to be told when it gives a connection."""


class Line:
    """A client's pool, for blocking calls. Safe to share between threads."""

    def __init__(self, pool: Client, direct: Direct, *, keep: bool) -> None:
        """`keep`: put connections aside between calls, which a pool of our own allows: the way to it costs a call
        a fifth."""
        self._pack = direct.pack
        self._take = pool.get_connection
        self._named = direct.named
        self._release = pool.release
        self._response_error = direct.response_error
        self._keep = keep
        self._free: list[Client] = []
        self._asking: list[None] = []
        """As long as the number of those who ask the pool: what is given back now is for them."""

    def run(self, call: Call) -> Sequence[int]:
        script, keys, head, permits = call
        packed = self._pack(("EVALSHA", script.sha, b"%d" % len(keys), *keys, *head, *permits))
        try:
            connection = self._free.pop()
        except IndexError:
            connection = self._ask()
        try:
            connection.send_packed_command((packed,))
            reply: Sequence[int] = connection.read_response()
        except self._response_error:
            self._release(connection)
            raise
        except BaseException:
            connection.disconnect()  # a signal's handler may raise where it does not do so itself, the reply on its way
            self._release(connection)
            raise
        if self._keep and not self._asking:
            self._free.append(connection)
            if self._asking:  # since a moment ago, by somebody who has not seen it
                self._drop()
        else:
            self._release(connection)
        return reply

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Leave all to the pool for a while: for calls through the client, which knows of nothing put aside."""
        self._asking.append(None)
        try:
            self._drop()
            yield
        finally:
            self._asking.pop()

    def _drop(self) -> None:
        with suppress(IndexError):  # others take as well
            while True:
                self._release(self._free.pop())

    def _ask(self) -> Client:
        self._asking.append(None)
        try:
            # Somebody may have put one aside before he could know that it is wanted.
            return self._free.pop() if self._free else self._take(*self._named)
        except IndexError:
            return self._take(*self._named)
        finally:
            self._asking.pop()


class AsyncLine:
    """The same on an event loop, and for many calls at once."""

    def __init__(self, pool: Client, direct: Direct, *, keep: bool) -> None:
        self._pack = direct.pack
        self._take = pool.get_connection
        self._named = direct.named
        self._release = pool.release
        self._response_error = direct.response_error
        self._keep = keep
        self._free: list[Client] = []
        self._asking = 0

    async def run(self, call: Call) -> Sequence[int]:
        script, keys, head, permits = call
        packed = self._pack(("EVALSHA", script.sha, b"%d" % len(keys), *keys, *head, *permits))
        connection = self._free.pop() if self._free else await self._ask()
        try:
            await connection.send_packed_command(packed)
            reply: Sequence[int] = await connection.read_response()
        except BaseException:
            await self._release(connection)
            raise
        await self._put(connection)
        return reply

    async def run_many(self, calls: Sequence[Call], landed: Landed) -> None:
        """One write; then each reply, or the server's error, as it comes in."""
        pack = self._pack
        packed = [
            pack(("EVALSHA", script.sha, b"%d" % len(keys), *keys, *head, *rest)) for script, keys, head, rest in calls
        ]
        connection = self._free.pop() if self._free else await self._ask()
        try:
            await connection.send_packed_command(packed)
            read = connection.read_response
            for _ in calls:
                try:
                    landed(await read())
                except self._response_error as error:
                    landed(error)
        except BaseException:
            await self._release(connection)
            raise
        await self._put(connection)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Leave all to the pool for a while: for calls through the client, which knows of nothing put aside."""
        self._asking += 1
        try:
            while self._free:
                await self._release(self._free.pop())
            yield
        finally:
            self._asking -= 1

    async def _ask(self) -> Client:
        self._asking += 1
        try:
            return await self._take(*self._named)
        finally:
            self._asking -= 1

    async def _put(self, connection: Client) -> None:
        if self._keep and not self._asking:
            self._free.append(connection)
        else:
            await self._release(connection)


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
