"""A gateway to a model server. One request takes its limits of key, user, team and model together, or none of them.

pip install 'pyslot-limits[redis]' fastapi httpx uvicorn
MODEL_URL=http://localhost:9000 REDIS_URL=redis://localhost:6379 uvicorn examples.llm_gateway:app
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict

from pyslot import AsyncLimiter, AsyncPermit, Slots, Window
from pyslot.asgi import LimitMiddleware, limited
from pyslot.gate import Gate
from pyslot.kinds import Asked

KEYS = {"sk-ann": ("ann", "search"), "sk-bob": ("bob", "search"), "sk-eve": ("eve", "ads")}
"""Key -> user and team. Yours come from a database."""
MODEL_SLOTS = {"small": 100, "large": 4}

limiter = AsyncLimiter(os.environ.get("REDIS_URL", "memory://"), hash_names=True)  # keys are secrets
upstream = httpx.AsyncClient(base_url=os.environ.get("MODEL_URL", "http://localhost:9000"), timeout=120)


class Chat(BaseModel):
    model_config = ConfigDict(extra="allow")  # what else there is goes through as it is
    model: str
    messages: list[dict[str, Any]]
    max_tokens: int = 500
    stream: bool = False


def tokens_of(team: str) -> Window:
    return Window(f"team:{team}", "tokens", limit=20_000, per=60)


async def caller(authorization: Annotated[str, Header()]) -> tuple[str, str, str]:
    """(key, user, team)."""
    key = authorization.removeprefix("Bearer ")
    if key not in KEYS:
        raise HTTPException(401, "unknown key")
    return key, *KEYS[key]


Caller = Annotated[tuple[str, str, str], Depends(caller)]


async def limits(chat: Chat, caller: Caller) -> list[Asked]:
    key, user, team = caller
    if chat.model not in MODEL_SLOTS:
        raise HTTPException(404, "unknown model")
    estimate = sum(len(str(message.get("content"))) for message in chat.messages) // 4 + chat.max_tokens
    return [
        Slots(f"key:{key}", limit=2),
        Window(f"user:{user}", "requests", limit=60, per=60),
        tokens_of(team).cost(estimate),
        Slots(f"model:{chat.model}", limit=MODEL_SLOTS[chat.model]),
    ]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    await upstream.aclose()
    await limiter.aclose()


app = FastAPI(lifespan=lifespan)
# A request whose client has gone is of no use to anybody, and costs money: it is cancelled.
app.add_middleware(LimitMiddleware, limiter=limiter, gate=Gate(200, waiting=200), cancel_unanswered=True)


@app.post("/v1/chat/completions")
async def complete(chat: Chat, caller: Caller, permit: Annotated[AsyncPermit, Depends(limited(limits))]) -> Response:
    tokens = tokens_of(caller[2])
    body = chat.model_dump()
    if not chat.stream:
        answer = await upstream.post("/v1/chat/completions", json=body)
        if answer.is_success:
            permit.settle(tokens.cost(answer.json()["usage"]["total_tokens"]))
        else:
            permit.refund(tokens)
        return JSONResponse(answer.json(), answer.status_code)
    body["stream_options"] = {"include_usage": True}
    return StreamingResponse(relay(body, permit, tokens), media_type="text/event-stream")


async def relay(body: dict[str, Any], permit: AsyncPermit, tokens: Window) -> AsyncIterator[str]:
    """Pass on the model's events, and settle to what it says it used; a client who leaves before has the estimate."""
    async with upstream.stream("POST", "/v1/chat/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {") and (usage := json.loads(line[6:]).get("usage")):
                permit.settle(tokens.cost(usage["total_tokens"]))
            yield f"{line}\n"
