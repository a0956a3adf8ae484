"""The middleware between a real server and a real client: what is held, for how long, and what is answered."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterable
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.background import BackgroundTask

from pyslot import AsyncPermit, Limiter, Slots, UsageError, Window
from pyslot.asgi import LimitMiddleware, Message, Receive, Scope, Send, limited, permit_of, take
from pyslot.gate import Gate
from pyslot.kinds import Asked
from pyslot.testing import World
from tests.service.servers import eventually, limiters, serve

SLOTS = Slots("key:a", 1)
RPM = Window("key:a", "requests", 100)
TPM = Window("team:a", "tokens", 1_000)


async def slots_only(scope: Scope) -> Iterable[Asked]:
    return (SLOTS,)


async def start(send: Send, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})


async def piece(send: Send, body: bytes = b"", *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


class Streamer:
    """A plain application that sends a piece, and a last one when it may. It listens to nothing."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.cancelled = self.done = False

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        try:
            await start(send)
            await piece(send, b"first", more=True)
            await self.go.wait()
            await piece(send, b"last", more=False)
            self.done = True
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def test_a_slot_is_held_until_the_last_piece_and_free_when_the_client_has_it() -> None:
    limiter, outside = limiters()
    app = Streamer()
    async with serve(LimitMiddleware(app, limiter, limits=slots_only)) as url, httpx.AsyncClient() as client:
        async with client.stream("GET", url) as response:
            pieces = response.aiter_raw()
            assert await anext(pieces) == b"first"
            assert outside.count(SLOTS) == 1
            refused = await client.get(url)
            assert refused.status_code == 429
            app.go.set()
            assert b"".join([part async for part in pieces]) == b"last"
            assert outside.count(SLOTS) == 0
        for _ in range(50):
            assert (await client.get(url)).status_code == 200, "a client that comes one by one is never refused"


async def nothing_comes() -> Message:
    await asyncio.sleep(60)
    raise AssertionError


async def test_the_slot_is_free_before_the_last_piece_is_sent() -> None:
    limiter, outside = limiters()
    held: list[int] = []

    async def send(message: Message) -> None:
        held.append(outside.count(SLOTS))

    app = Streamer()
    app.go.set()
    await LimitMiddleware(app, limiter, limits=slots_only)({"type": "http"}, nothing_comes, send)
    assert held == [1, 1, 0]


async def test_a_refusal_has_headers_and_a_problem_that_name_no_subject() -> None:
    limiter, outside = limiters()
    held = outside.try_acquire(SLOTS).require()

    async def limits(scope: Scope) -> Iterable[Asked]:
        return SLOTS, RPM

    async with serve(LimitMiddleware(Streamer(), limiter, limits=limits)) as url, httpx.AsyncClient() as client:
        for _ in range(3):  # on one connection, though the body was not read
            response = await client.post(url, content=b"x" * 1_000_000)
            assert response.status_code == 429
        assert response.headers["content-type"] == "application/problem+json"
        assert response.headers["retry-after"] == "1"
        assert int(response.headers["retry-after-ms"]) > 0
        assert response.headers["ratelimit"] == '"key-slots";r=0, "key-requests";r=100;t=0'
        assert response.headers["x-ratelimit-remaining-requests"] == "100"
        problem = response.json()
        assert problem["type"].endswith("#quota-exceeded")
        assert problem["violated-policies"] == ["key-slots"]
        assert problem["detail"].startswith("refused by key-slots (1 of 1 in use); try again in ")
        assert "key:a" not in response.text
    held.finish()
    assert outside.peek(RPM)[0].used == 0, "a refused request costs nothing"


async def test_what_can_never_be_granted_is_said_so() -> None:
    limiter, _ = limiters()

    async def limits(scope: Scope) -> Iterable[Asked]:
        return (TPM.cost(1_001),)

    async with serve(LimitMiddleware(Streamer(), limiter, limits=limits)) as url, httpx.AsyncClient() as client:
        response = await client.get(url)
    assert response.status_code == 429
    assert response.headers["x-should-retry"] == "false"
    assert "retry-after" not in response.headers
    assert (
        response.json()["detail"]
        == "refused by team-tokens (0 of 1000 in use); it asks for more than there ever is: ask for less"
    )


async def test_an_answer_has_the_headers_of_its_limits_but_the_application_s_own_go_first() -> None:
    limiter, _ = limiters()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await start(send, (b"X-RateLimit-Limit-Requests", b"7"))
        await piece(send, more=False)

    async def limits(scope: Scope) -> Iterable[Asked]:
        return (RPM,)

    async with serve(LimitMiddleware(app, limiter, limits=limits)) as url, httpx.AsyncClient() as client:
        response = await client.get(url)
    assert response.headers.get_list("x-ratelimit-limit-requests") == ["7"]
    assert response.headers["ratelimit-policy"] == '"key-requests";q=100;w=60'


@pytest.mark.parametrize("policy", ["raise", "closed"])
async def test_while_the_server_that_counts_is_away_the_answer_is_503(policy: str) -> None:
    world = World()
    app = LimitMiddleware(Streamer(), world.async_limiter(on_outage=policy), limits=slots_only)
    async with serve(app) as url, httpx.AsyncClient() as client:
        with world.outage():
            response = await client.get(url)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert response.json()["type"].endswith("#temporary-reduced-capacity")


# Clients that go


async def leave_mid_stream(url: str) -> None:
    async with httpx.AsyncClient() as client, client.stream("GET", url) as response:
        assert await anext(response.aiter_raw())


async def test_a_plain_application_is_cancelled_when_its_client_goes_mid_stream() -> None:
    limiter, outside = limiters()
    app = Streamer()
    middleware = LimitMiddleware(app, limiter, limits=slots_only)
    ended: list[int] = []

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        await middleware(scope, receive, send)
        ended.append(task.cancelling() if task else -1)

    async with serve(around) as url:
        await leave_mid_stream(url)
        await eventually(lambda: bool(ended))
    assert app.cancelled
    assert outside.count(SLOTS) == 0
    assert ended == [0], "who called the middleware is not cancelled"


async def test_an_application_that_listens_ends_by_itself_when_its_client_goes() -> None:
    limiter, outside = limiters()
    heard: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await start(send)
        await piece(send, b"first", more=True)
        while not heard or heard[-1]["type"] != "http.disconnect":
            heard.append(await receive())
        await asyncio.sleep(0.05)  # the last of its work: not cancelled
        heard.append(await receive())

    async with serve(LimitMiddleware(app, limiter, limits=slots_only)) as url:
        await leave_mid_stream(url)
        await eventually(lambda: outside.count(SLOTS) == 0)
    assert [message["type"] for message in heard] == ["http.request", "http.disconnect", "http.disconnect"]


async def test_server_sent_events_end_with_their_client_and_clean_up() -> None:
    limiter, outside = limiters()
    app = FastAPI()
    app.add_middleware(LimitMiddleware, limiter=limiter)
    ended: list[str] = []

    async def events(permit: AsyncPermit) -> AsyncIterator[str]:
        try:
            for i in range(10_000):
                yield f"data: {i}\n\n"
                permit.settle(TPM.cost(i + 1))
                await asyncio.sleep(0.01)
        finally:
            ended.append("stream")

    @app.get("/")
    async def stream(request: Request) -> StreamingResponse:
        permit = await take(request.scope, SLOTS, TPM.cost(500))
        background = BackgroundTask(lambda: ended.append("background"))
        return StreamingResponse(events(permit), media_type="text/event-stream", background=background)

    async with serve(app) as url:
        await leave_mid_stream(url)
        await eventually(lambda: outside.count(SLOTS) == 0)
        await eventually(lambda: "background" in ended)
    assert ended == ["stream", "background"], "it was the application that ended it"
    assert 0 < outside.peek(TPM)[0].used < 500, "what was settled before the client went stands"


async def test_a_handler_that_has_not_answered_goes_on_and_holds_its_slot() -> None:
    limiter, outside = limiters()
    go, entered, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await go.wait()
        done.set()
        await start(send)
        await piece(send, more=False)

    async with serve(LimitMiddleware(app, limiter, limits=slots_only)) as url:
        async with httpx.AsyncClient() as client:
            request = asyncio.create_task(client.get(url))
            await entered.wait()
            request.cancel()
        await asyncio.sleep(0.2)
        assert outside.count(SLOTS) == 1, "the work goes on, and so does the slot"
        go.set()
        await eventually(lambda: outside.count(SLOTS) == 0)
    assert done.is_set()


async def test_a_handler_that_has_not_answered_may_be_cancelled() -> None:
    limiter, outside = limiters()
    entered = asyncio.Event()
    ends: list[type[BaseException]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        try:
            await asyncio.sleep(60)
        except BaseException as error:
            ends.append(type(error))
            raise

    middleware = LimitMiddleware(app, limiter, limits=slots_only, cancel_unanswered=True)
    async with serve(middleware) as url:
        async with httpx.AsyncClient() as client:
            request = asyncio.create_task(client.get(url))
            await entered.wait()
            request.cancel()
        await eventually(lambda: outside.count(SLOTS) == 0)
    assert ends == [asyncio.CancelledError]


async def test_who_goes_while_waiting_for_room_leaves_nothing_behind() -> None:
    limiter, outside = limiters()
    held = outside.try_acquire(SLOTS).require()
    gate = Gate(1, waiting=5)
    app = Streamer()
    middleware = LimitMiddleware(app, limiter, limits=slots_only, wait=30, gate=gate)
    async with serve(middleware) as url:
        async with httpx.AsyncClient() as client:
            request = asyncio.create_task(client.get(url))
            await eventually(lambda: gate.in_flight == 1)
            request.cancel()
        await eventually(lambda: gate.in_flight == 0)
    held.finish()
    assert outside.count(SLOTS) == 0
    assert not app.done


async def test_a_body_of_any_size_reaches_the_application_whole() -> None:
    limiter, _ = limiters()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        digest, more = hashlib.sha256(), True
        while more:
            message = await receive()
            digest.update(message["body"])
            more = message["more_body"]
            await asyncio.sleep(0)
        await start(send)
        await piece(send, digest.hexdigest().encode(), more=False)

    body = b"0123456789abcdef" * 500_000
    async with serve(LimitMiddleware(app, limiter, limits=slots_only)) as url, httpx.AsyncClient() as client:
        for _ in range(3):
            assert (await client.post(url, content=body)).text == hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("full", [True, False])
async def test_who_asks_before_sending_a_body_is_told_to_only_when_admitted(full: bool) -> None:
    limiter, outside = limiters()
    held = outside.try_acquire(SLOTS).require()
    if not full:
        held.finish()

    async def limits(scope: Scope) -> Iterable[Asked]:
        await asyncio.sleep(0.05)  # a look into a database
        return (SLOTS,)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await start(send)
        await piece(send, more=False)

    async with serve(LimitMiddleware(app, limiter, limits=limits)) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
        line = await reader.readline()
        writer.close()
    held.finish()
    assert line.split()[1] == (b"429" if full else b"100")


# Applications


class Chat(BaseModel):
    prompt: str
    most: int = 100


async def chat_limits(chat: Chat, authorization: Annotated[str, Header()]) -> list[Asked]:
    return [Slots(f"key:{authorization}", 1), TPM.cost(chat.most)]


Held = Annotated[AsyncPermit, Depends(limited(chat_limits))]


def chat_app() -> tuple[FastAPI, Limiter]:
    limiter, outside = limiters()
    app = FastAPI()
    app.add_middleware(LimitMiddleware, limiter=limiter)

    @app.post("/chat")
    async def chat(chat: Chat, permit: Held) -> dict[str, int]:
        if chat.prompt == "fail":
            raise RuntimeError("the model is down")
        permit.settle(TPM.cost(len(chat.prompt)))
        return {"tokens": len(chat.prompt)}

    @app.get("/itself")
    async def itself() -> None:
        async with limiter.acquire(TPM.cost(2_000)):
            pass

    return app, outside


async def test_the_dependency_judges_from_header_and_body_and_the_handler_settles() -> None:
    app, outside = chat_app()
    key = {"Authorization": "sk-1"}
    async with serve(app) as url, httpx.AsyncClient(base_url=url) as client:
        response = await client.post("/chat", json={"prompt": "hello", "most": 900}, headers=key)
        assert response.json() == {"tokens": 5}
        assert response.headers["x-ratelimit-remaining-tokens"] == "100", "as it stood when the request was admitted"
        assert outside.peek(TPM)[0].used == 5
        assert outside.count(Slots("key:sk-1", 1)) == 0
        refused = await client.post("/chat", json={"prompt": "hello", "most": 996}, headers=key)
        assert refused.status_code == 429
        assert refused.json()["violated-policies"] == ["team-tokens"]
        assert (await client.post("/chat", json={"prompt": 1}, headers=key)).status_code == 422


async def test_a_handler_that_fails_gives_its_slot_back() -> None:
    app, outside = chat_app()
    async with serve(app) as url, httpx.AsyncClient(base_url=url) as client:
        response = await client.post("/chat", json={"prompt": "fail"}, headers={"Authorization": "sk-1"})
    assert response.status_code == 500
    assert outside.count(Slots("key:sk-1", 1)) == 0
    assert outside.peek(TPM)[0].used == 100, "an estimate stands unless it is settled or refunded"


async def test_a_handler_that_fails_may_be_refunded() -> None:
    limiter, outside = limiters()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError

    async def limits(scope: Scope) -> Iterable[Asked]:
        return SLOTS, TPM.cost(100)

    middleware = LimitMiddleware(app, limiter, limits=limits, on_error="refund")
    async with serve(middleware) as url, httpx.AsyncClient() as client:
        assert (await client.get(url)).status_code == 500
    assert outside.peek(TPM)[0].used == 0


async def test_a_refusal_that_a_handler_meets_itself_is_a_429_too() -> None:
    app, _ = chat_app()
    async with serve(app) as url, httpx.AsyncClient(base_url=url) as client:
        response = await client.get("/itself")
    assert response.status_code == 429
    assert response.headers["x-should-retry"] == "false"
    assert response.json()["violated-policies"] == ["team-tokens"]


async def test_what_needs_the_middleware_says_so() -> None:
    with pytest.raises(UsageError, match="LimitMiddleware: add it"):
        await take({"type": "http"}, SLOTS)
    limiter, _ = limiters()
    errors: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            permit_of(scope)
        except UsageError as error:
            errors.append(str(error))
        await start(send)
        await piece(send, more=False)

    async with serve(LimitMiddleware(app, limiter)) as url, httpx.AsyncClient() as client:
        await client.get(url)
    assert errors == ["this request holds no permit: give LimitMiddleware limits, or take() some"]


async def test_the_handler_of_a_plain_application_settles_what_the_middleware_took() -> None:
    limiter, outside = limiters()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await start(send)
        permit_of(scope).settle(TPM.cost(7))
        await piece(send, more=False)

    async def limits(scope: Scope) -> Iterable[Asked]:
        return (TPM.cost(500),)

    async with serve(LimitMiddleware(app, limiter, limits=limits)) as url, httpx.AsyncClient() as client:
        await client.get(url)
        assert outside.peek(TPM)[0].used == 7


async def test_scopes_that_are_no_requests_pass_through() -> None:
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    limiter, _ = limiters()

    async def nothing(*_: object) -> Any:  # noqa: ANN401
        raise AssertionError

    await LimitMiddleware(app, limiter, limits=slots_only)({"type": "lifespan"}, nothing, nothing)
    assert seen == ["lifespan"]


# The gate


async def test_a_gate_admits_so_many_lets_so_many_wait_and_turns_the_rest_away() -> None:
    limiter, _ = limiters()
    gate = Gate(2, waiting=1, patience=30)
    app = Streamer()
    async with serve(LimitMiddleware(app, limiter, gate=gate)) as url, httpx.AsyncClient() as client:
        first = [asyncio.create_task(client.get(url)) for _ in range(2)]
        await eventually(lambda: gate.in_flight == 2)
        waiter = asyncio.create_task(client.get(url))
        await eventually(lambda: gate.waiting == 1)
        turned_away = await client.get(url)
        assert turned_away.status_code == 503
        assert int(turned_away.headers["retry-after"]) >= 1
        assert json.loads(turned_away.text)["title"] == "This server is busy"
        app.go.set()
        assert [(await each).status_code for each in [*first, waiter]] == [200] * 3
    assert (gate.in_flight, gate.waiting) == (0, 0)


async def test_a_gate_s_waiter_loses_patience() -> None:
    limiter, _ = limiters()
    gate = Gate(1, waiting=1, patience=0.05)
    app = Streamer()
    async with serve(LimitMiddleware(app, limiter, gate=gate)) as url, httpx.AsyncClient() as client:
        first = asyncio.create_task(client.get(url))
        await eventually(lambda: gate.in_flight == 1)
        assert (await client.get(url)).status_code == 503
        assert gate.waiting == 0
        app.go.set()
        assert (await first).status_code == 200
    assert gate.in_flight == 0
