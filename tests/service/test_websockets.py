"""A websocket is one request: held until it is closed, refused before it is accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from pyslot import Slots
from pyslot.asgi import LimitMiddleware, Message, Receive, Scope, Send, permit_of
from pyslot.kinds import Asked
from tests.service.servers import eventually, limiters, serve

SLOTS = Slots("key:a", 1)


async def slots_only(scope: Scope) -> Iterable[Asked]:
    return (SLOTS,)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Echo until told to close."""
    assert permit_of(scope).id
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        if message["text"] == "close":
            await send({"type": "websocket.close"})
        else:
            await send({"type": "websocket.send", "text": message["text"]})


async def test_a_websocket_holds_until_it_is_closed_by_either_side() -> None:
    limiter, outside = limiters()
    async with serve(LimitMiddleware(echo, limiter, limits=slots_only)) as url:
        where = url.replace("http", "ws")
        for _ in range(20):
            async with connect(where) as socket:
                await socket.send("hello")
                assert await socket.recv() == "hello"
                assert outside.count(SLOTS) == 1
                assert socket.response is not None
                assert socket.response.headers["ratelimit"] == '"key-slots";r=0'
                await socket.send("close")
                await socket.wait_closed()
            assert outside.count(SLOTS) == 0, "who is told that it is over may come again at once"
        async with connect(where) as socket:
            await socket.send("hello")
            await socket.recv()
        await eventually(lambda: outside.count(SLOTS) == 0)


async def test_its_slot_is_free_before_the_close_is_sent() -> None:
    limiter, outside = limiters()
    held: list[int] = []
    messages: list[Message] = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "close"}]

    async def receive() -> Message:
        return messages.pop(0) if messages else {"type": "websocket.disconnect"}

    async def send(message: Message) -> None:
        held.append(outside.count(SLOTS))

    await LimitMiddleware(echo, limiter, limits=slots_only)({"type": "websocket"}, receive, send)
    assert held == [1, 0]


async def test_a_client_that_is_cut_off_lets_go() -> None:
    limiter, outside = limiters()
    async with serve(LimitMiddleware(echo, limiter, limits=slots_only)) as url:
        async with connect(url.replace("http", "ws")) as socket:
            assert outside.count(SLOTS) == 1
            socket.transport.abort()
        await eventually(lambda: outside.count(SLOTS) == 0)


async def test_a_websocket_is_refused_with_a_response() -> None:
    limiter, outside = limiters()
    held = outside.try_acquire(SLOTS).require()
    async with serve(LimitMiddleware(echo, limiter, limits=slots_only)) as url:
        with pytest.raises(InvalidStatus) as caught:
            async with connect(url.replace("http", "ws")):
                pass
    assert caught.value.response.status_code == 429
    assert caught.value.response.headers["retry-after"] == "1"
    held.finish()


async def test_a_server_that_can_send_no_response_closes() -> None:
    limiter, outside = limiters()
    held = outside.try_acquire(SLOTS).require()
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        await asyncio.sleep(60)
        raise AssertionError

    await LimitMiddleware(echo, limiter, limits=slots_only)({"type": "websocket"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1013, "reason": "A limit is reached"}]
    held.finish()
