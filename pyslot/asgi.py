"""Limits for ASGI applications: taken before a request is worked on, given back when its response has ended.

app.add_middleware(LimitMiddleware, limiter=limiter)                    # Starlette, FastAPI
app = LimitMiddleware(app, limiter, limits=limits_of)                   # any ASGI application
permit: Annotated[AsyncPermit, Depends(limited(limits_of_body))]        # a FastAPI dependency, inside the middleware
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeAlias

from pyslot.aio import AsyncLimiter
from pyslot.decision import Decision, plainly
from pyslot.errors import LimitExceeded, PyslotError, StoreUnavailable, UsageError
from pyslot.gate import Gate, Overloaded
from pyslot.headers import AWAY, DEFAULT, Style, headers, policies, retry_headers
from pyslot.kinds import Asked
from pyslot.permit import AsyncPermit, OnError

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Limits: TypeAlias = Callable[[Scope], Awaitable[Iterable[Asked]]]
"""The limits of a request, judged from its scope; none for one that is free."""

_KEY = "pyslot"
_PROBLEMS = "https://iana.org/assignments/http-problem-types#"


class LimitMiddleware:
    """Keeps a request's permits until its response has ended, and answers for limits that refuse.

    A permit is held until the last piece of the response is handed over, however long it streams, or until the client
    has gone. `LimitExceeded`, raised by anything inside, becomes a 429; `StoreUnavailable`, and a refusal because the
    server that counts is away, a 503; a full gate a 503. Responses get the headers of all decisions made for them.

    When a client goes in the midst of a response, an application that is not itself waiting for `http.disconnect` is
    cancelled. One that has not begun to respond goes on, and holds what it holds, unless `cancel_unanswered`.

    A websocket is one request: it holds until it is closed, and is refused before it is accepted.
    """

    def __init__(
        self,
        app: App,
        limiter: AsyncLimiter,
        *,
        limits: Limits | None = None,
        wait: float | None = None,
        on_error: OnError = "keep",
        gate: Gate | None = None,
        styles: Sequence[Style] = DEFAULT,
        cancel_unanswered: bool = False,
    ) -> None:
        """
        limits: an async function from the scope to the limits to take before the application is called. `wait` and
            `on_error` are those of `AsyncLimiter.acquire`.
        gate: how many requests this process works on at a time, whatever their limits.
        styles: of the headers, see `pyslot.headers.Style`; none for no headers but those of a refusal.
        cancel_unanswered: also cancel what has not begun to respond when its client goes. Saves work that nobody will
            see; only for applications that may be cancelled between any two awaits.
        """
        self.app = app
        self.limiter = limiter
        self._limits = limits
        self._wait = wait
        self._on_error = on_error
        self._gate = gate
        self._styles = styles
        self._cancel_unanswered = cancel_unanswered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(self, scope["type"] == "http", receive, send)
        try:
            await exchange.until_gone(self._serve({**scope, _KEY: exchange}, exchange))
        except (LimitExceeded, StoreUnavailable, Overloaded) as error:
            if exchange.started:
                raise
            await exchange.refuse(error, "websocket.http.response" in scope.get("extensions", ()))

    async def _serve(self, scope: Scope, exchange: _Exchange) -> None:
        if self._gate or self._wait:
            exchange.watch()
        async with self._gate.place() if self._gate else nullcontext():
            if self._limits:
                await exchange.take(await self._limits(scope), None, self._wait, self._on_error)
            exchange.admitted = True
            exchange.watch()
            try:
                await self.app(scope, exchange.receive, exchange.send)
            except BaseException as error:
                await exchange.finish(error)
                raise
            await exchange.finish()


async def take(
    scope: Scope, *limits: Asked, id: str | None = None, wait: float | None = None, on_error: OnError = "keep"
) -> AsyncPermit:
    """Take limits for the request of a scope; `LimitMiddleware` gives them back, and answers where they refuse."""
    return await _exchange(scope).take(limits, id, wait, on_error)


def permit_of(scope: Scope) -> AsyncPermit:
    """The first permit of a request: what `LimitMiddleware(limits=...)` took, to be settled by who handles it."""
    permits = _exchange(scope).permits
    if not permits:
        raise UsageError("this request holds no permit: give LimitMiddleware limits, or take() some")
    return permits[0]


def limited(
    limits: Callable[..., Any], *, wait: float | None = None, on_error: OnError = "keep"
) -> Callable[..., Awaitable[AsyncPermit]]:
    """A FastAPI dependency that takes what another one, `limits`, returns, and gives the permit.

    `limits` is any dependency: it may look at headers, the body, a database. Its application needs `LimitMiddleware`.
    """
    from fastapi import Depends  # noqa: PLC0415 - this library does without FastAPI
    from starlette.requests import HTTPConnection  # noqa: PLC0415

    async def permit(connection: HTTPConnection, asked: Iterable[Asked]) -> AsyncPermit:
        return await take(connection.scope, *asked, wait=wait, on_error=on_error)

    keyword = inspect.Parameter.KEYWORD_ONLY
    permit.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what FastAPI looks at
        [
            inspect.Parameter("connection", keyword, annotation=HTTPConnection),
            inspect.Parameter("asked", keyword, default=Depends(limits)),
        ]
    )
    return permit


class _Exchange:
    """One request: its permits, and what is known of its client."""

    def __init__(self, middleware: LimitMiddleware, http: bool, receive: Receive, send: Send) -> None:
        self.permits: list[AsyncPermit] = []
        self.admitted = False
        self.started = False
        self._middleware = middleware
        self._http = http
        self._receive = receive
        self._send = send
        self._decisions: list[Decision[AsyncPermit]] = []
        self._ended = False
        self._listening = False
        self._messages: asyncio.Queue[Message] = asyncio.Queue(1)
        self._cancelled = False
        self._task = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None

    async def take(self, limits: Iterable[Asked], id: str | None, wait: float | None, on_error: OnError) -> AsyncPermit:
        decision = await self._middleware.limiter.try_acquire(*limits, id=id, wait=wait)
        self._decisions.append(decision)
        permit = decision.require()
        permit.on_error = on_error
        self.permits.append(permit)
        return permit

    async def finish(self, error: BaseException | None = None) -> None:
        """Give back all permits; errors of doing so are not the client's."""
        if self._cancelled:
            error = None  # the client's going is no fault of the work
        while self.permits:
            await self.permits.pop().__aexit__(type(error) if error else None, error, None)

    # Messages

    async def receive(self) -> Message:
        if not self._http:
            return await self._receive()
        self._listening = True
        try:
            message = await self._messages.get()
        finally:
            self._listening = False
        if message["type"] == "http.disconnect":
            self._messages.put_nowait(message)  # who asks again is told again
        return message

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "http.response.start" | "websocket.accept" | "websocket.http.response.start":
                self.started = True
                message = {**message, "headers": self._with_ours(message.get("headers", ()))}
            case "http.response.body" if not message.get("more_body", False):
                await self._end()
            case "websocket.close":
                await self._end()
        await self._send(message)

    async def _end(self) -> None:
        # Before the client can know that it is over: its next request must find the slot free.
        self._ended = True
        await self.finish()

    def _with_ours(self, theirs: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        result = list(theirs)
        names = {name.lower() for name, _ in result}
        return result + [(name, value) for name, value in _encode(self._told(True, 0.0)) if name not in names]

    def _told(self, granted: bool, retry_after: float | None) -> dict[str, str]:
        statuses = [status for decision in self._decisions if not decision.degraded for status in decision.statuses]
        return headers(granted, retry_after, statuses, self._middleware._styles)

    # A client that goes

    async def until_gone(self, work: Awaitable[None]) -> None:
        """Do the work; cancelled where the client has gone and nobody but us would notice."""
        try:
            await work
        except asyncio.CancelledError:
            if not self._called_off():
                raise
        else:
            self._called_off()
        finally:
            if self._watcher:
                self._watcher.cancel()

    def _called_off(self) -> bool:
        """True if it was us who cancelled, and nobody else."""
        return self._cancelled and self._task is not None and not self._task.uncancel()

    def watch(self) -> None:
        """Read ahead, to notice that the client has gone. From here on a body that is awaited may be sent."""
        if self._http and self._watcher is None:
            self._watcher = asyncio.create_task(self._watch(), name="pyslot-client")

    async def _watch(self) -> None:
        # Two messages ahead of the application at most: one in the queue, one here.
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                unheard = not self._listening and not self._ended
                useless = self.started or not self.admitted or self._middleware._cancel_unanswered
                if unheard and useless and self._task:
                    self._cancelled = True
                    self._task.cancel()
                await self._messages.put(message)
                return
            await self._messages.put(message)

    # A refusal

    async def refuse(self, error: PyslotError, can_respond: bool) -> None:
        """Answer in place of the application."""
        status, told, problem = self._refusal(error)
        body = json.dumps(problem).encode()
        await self.finish()
        kind = "http.response"
        if not self._http:
            if not can_respond:
                # 1013: try again later. A server that can't send a response refuses the handshake with a 403.
                await self._send({"type": "websocket.close", "code": 1013, "reason": problem["title"]})
                return
            kind = "websocket.http.response"
        fields = {**told, "Content-Type": "application/problem+json", "Content-Length": str(len(body))}
        await self._send({"type": f"{kind}.start", "status": status, "headers": _encode(fields)})
        await self._send({"type": f"{kind}.body", "body": body})

    def _refusal(self, error: PyslotError) -> tuple[int, dict[str, str], dict[str, Any]]:
        if isinstance(error, LimitExceeded) and error.decision.refused_by:
            decision = error.decision
            if decision not in self._decisions:  # of a handler that asked a limiter itself
                self._decisions.append(decision)
            refused = [(name, each) for name, each in policies(decision.statuses) if each.limit in decision.refused_by]
            detail = ", ".join(f"{name} ({each.used} of {each.limit.limit} in use)" for name, each in refused)
            problem = _problem(
                429, "quota-exceeded", "A limit is reached", f"refused by {detail}", decision.retry_after
            )
            problem["violated-policies"] = [name for name, _ in refused]
            return 429, self._told(False, decision.retry_after), problem
        if isinstance(error, Overloaded):
            title, wait = "This server is busy", error.retry_after
        else:
            title = "Limits can't be checked at the moment"
            wait = (error.decision.retry_after if isinstance(error, LimitExceeded) else None) or AWAY
        return 503, retry_headers(wait), _problem(503, "temporary-reduced-capacity", title, title, wait)


def _problem(status: int, kind: str, title: str, detail: str, wait: float | None) -> dict[str, Any]:
    """A problem document (RFC 9457) of a type of the IETF draft; `error` is where the SDKs of model APIs look."""
    detail += (
        "; it asks for more than there ever is: ask for less" if wait is None else f"; try again in {plainly(wait)}"
    )
    error = {"message": detail, "type": "rate_limit_error" if status == 429 else "overloaded_error", "code": kind}
    return {"type": _PROBLEMS + kind, "title": title, "status": status, "detail": detail, "error": error}


def _encode(fields: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()]


def _exchange(scope: Scope) -> _Exchange:
    exchange = scope.get(_KEY)
    if not isinstance(exchange, _Exchange):
        raise UsageError("this request did not come through pyslot.asgi.LimitMiddleware: add it to the application")
    return exchange
