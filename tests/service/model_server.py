"""A stand-in for a model's API, in the words of OpenAI's: a token each few milliseconds, and it counts what it does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pyslot.asgi import Receive, Scope, Send


class ModelServer:
    """Answers with as many words as `max_tokens`, up to ten, and says that a prompt has 5 tokens."""

    def __init__(self, pause: float = 0.005) -> None:
        self.pause = pause
        self.in_flight = self.most = self.answered = self.left = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        gone = asyncio.ensure_future(receive())
        try:
            await self._answer(json.loads(body), send, gone)
        finally:
            gone.cancel()
            self.in_flight -= 1

    async def _answer(self, asked: dict[str, Any], send: Send, gone: asyncio.Task[Any]) -> None:
        words = [f"word{i}" for i in range(min(asked.get("max_tokens") or 10, asked.get("words", 10)))]
        usage = {"prompt_tokens": 5, "completion_tokens": len(words), "total_tokens": 5 + len(words)}
        stream = asked.get("stream")
        kind = b"text/event-stream" if stream else b"application/json"
        if stream:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        common = {"id": "1", "created": 1, "model": asked["model"]}
        for word in words:
            await asyncio.sleep(self.pause)
            if gone.done():
                self.left += 1
                return
            if stream:
                delta = {"role": "assistant", "content": word + " "}
                chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}], **common}
                await _event(send, chunk)
        self.answered += 1
        if stream:
            last = {"index": 0, "delta": {}, "finish_reason": "stop"}
            await _event(send, {"object": "chat.completion.chunk", "choices": [last], **common})
            await _event(send, {"object": "chat.completion.chunk", "choices": [], "usage": usage, **common})
            await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
            return
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": " ".join(words)},
        }
        whole = {"object": "chat.completion", "choices": [choice], "usage": usage, **common}
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": json.dumps(whole).encode()})


async def _event(send: Send, value: dict[str, Any]) -> None:
    body = f"data: {json.dumps(value)}\n\n".encode()
    await send({"type": "http.response.body", "body": body, "more_body": True})
