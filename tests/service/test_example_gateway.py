"""The gateway example, with the openai SDK in front of it and a stand-in model server behind."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import openai
import pytest

from pyslot import Limiter, Slots
from tests.conftest import GetServer
from tests.service.model_server import ModelServer
from tests.service.servers import eventually, serve

MESSAGES: Any = [{"role": "user", "content": "Tell me something about slots."}]


class Town:
    """Everything that runs."""

    def __init__(self, url: str, model: ModelServer, outside: Limiter, gateway: ModuleType) -> None:
        self.url = url
        self.model = model
        self.outside = outside
        self.gateway = gateway

    def client(self, key: str, retries: int = 0) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(api_key=key, base_url=f"{self.url}/v1", max_retries=retries, timeout=30)

    def tokens(self, team: str) -> int:
        return self.outside.peek(self.gateway.tokens_of(team))[0].used

    def held(self, subject: str) -> int:
        return self.outside.count(Slots(subject, None))


@pytest.fixture
async def town(get_server: GetServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Town]:
    url = get_server("valkey-9.1").url
    model = ModelServer()
    async with serve(model) as model_url:
        monkeypatch.setenv("REDIS_URL", url)
        monkeypatch.setenv("MODEL_URL", model_url)
        gateway = importlib.reload(importlib.import_module("examples.llm_gateway"))
        async with serve(gateway.app, lifespan="on") as gateway_url:
            with Limiter(url, hash_names=True) as outside:
                yield Town(gateway_url, model, outside, gateway)


async def test_an_answer_settles_to_what_was_used_and_says_where_the_caller_stands(town: Town) -> None:
    async with town.client("sk-ann") as client:
        raw = await client.chat.completions.with_raw_response.create(model="small", messages=MESSAGES, max_tokens=300)
        assert str(raw.parse().choices[0].message.content).startswith("word0 word1")
    assert raw.headers["x-ratelimit-limit-tokens"] == "20000"
    assert '"user-requests";r=59;t=60' in raw.headers["ratelimit"]
    assert town.tokens("search") == 15, "5 of the prompt and 10 words"
    assert town.held("key:sk-ann") == town.held("model:small") == 0


async def test_a_stream_holds_its_slots_and_settles_at_its_end(town: Town) -> None:
    async with town.client("sk-ann") as client:
        stream = await client.chat.completions.create(model="large", messages=MESSAGES, stream=True)
        words = []
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                words.append(chunk.choices[0].delta.content)
                assert town.held("model:large") == 1
    assert len(words) == 10
    assert town.held("model:large") == 0
    assert town.tokens("search") == 15


async def test_who_leaves_a_stream_frees_the_slots_and_stops_the_model(town: Town) -> None:
    town.model.pause = 0.05
    async with town.client("sk-ann") as client:
        stream = await client.chat.completions.create(model="large", messages=MESSAGES, stream=True)
        await anext(aiter(stream))
        await stream.close()
        await eventually(lambda: town.held("model:large") == 0)
    await eventually(lambda: town.model.left == 1)
    assert town.model.answered == 0
    assert town.tokens("search") > 500, "nobody knows what was used: the estimate stands"


async def test_who_leaves_before_an_answer_stops_the_model_too(town: Town) -> None:
    town.model.pause = 1.0
    async with town.client("sk-ann") as client:
        asked = asyncio.create_task(client.chat.completions.create(model="large", messages=MESSAGES))
        await eventually(lambda: town.model.in_flight == 1)
        asked.cancel()
        await asyncio.wait([asked])
        await eventually(lambda: town.held("model:large") == 0, 5)
    await eventually(lambda: town.model.left == 1, 5)


async def test_a_crowd_stays_within_every_limit_and_is_served_in_the_end(town: Town) -> None:
    town.model.pause = 0.01

    async def ask(client: openai.AsyncOpenAI) -> int:
        """Ask until served; how often it took."""
        for n in range(1, 200):
            try:
                await client.chat.completions.create(model="large", messages=MESSAGES, max_tokens=50)
            except openai.RateLimitError as error:
                await asyncio.sleep(float(error.response.headers["retry-after-ms"]) / 1000)
            else:
                return n
        raise AssertionError

    clients = [town.client(key) for key in ("sk-ann", "sk-bob", "sk-eve")]
    tries = await asyncio.gather(*(ask(client) for client in clients for _ in range(6)))
    for client in clients:
        await client.close()
    assert town.model.most <= 4, "large has four slots, and each key has two"
    assert sum(tries) > 18, "somebody had to come again"
    assert (town.tokens("search"), town.tokens("ads")) == (12 * 15, 6 * 15)
    assert all(town.held(f"key:{key}") == 0 for key in town.gateway.KEYS)


async def test_what_asks_for_too_much_is_told_for_good(town: Town) -> None:
    async with town.client("sk-ann", retries=2) as client:
        with pytest.raises(openai.RateLimitError, match="team-tokens") as caught:
            await client.chat.completions.create(model="small", messages=MESSAGES, max_tokens=30_000)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert "ann" not in caught.value.response.text


async def test_an_unknown_key_or_model_costs_nothing(town: Town) -> None:
    async with town.client("sk-nobody") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.chat.completions.create(model="small", messages=MESSAGES)
    async with town.client("sk-ann") as client:
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="huge", messages=MESSAGES)
    assert town.tokens("search") == 0
