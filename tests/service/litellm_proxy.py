"""The callback for LiteLLM, in the real proxy, before a stand-in model server. `make litellm` runs it: the proxy has an
environment of its own, for it pins much of what it needs."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from pyslot import Limiter, Slots
from tests.conftest import GetServer
from tests.service.model_server import ModelServer
from tests.service.servers import eventually, serve

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("LITELLM_PYTHON", ROOT / ".venv-litellm/bin/python"))
LEASE = 3.0
TEAM = Slots("team:search", None)
MESSAGES: Any = [{"role": "user", "content": "hello"}]
CONFIG = """
model_list:
  - model_name: stand-in
    litellm_params: {{model: openai/stand-in, api_base: "{model}/v1", api_key: none}}
litellm_settings:
  callbacks: litellm_callback.team_concurrency
  num_retries: 0
general_settings:
  custom_auth: auth.of_team
"""
AUTH = """
from litellm.proxy._types import UserAPIKeyAuth

async def of_team(request, api_key):
    return UserAPIKeyAuth(api_key=api_key, team_id="search", team_metadata={"max_in_flight": 2})
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


class Proxy:
    def __init__(self, url: str, model: ModelServer, outside: Limiter) -> None:
        self.url = url
        self.model = model
        self.outside = outside

    def client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(api_key="sk-x", base_url=f"{self.url}/v1", max_retries=0, timeout=30)

    def held(self) -> int:
        return self.outside.count(TEAM)


@pytest.fixture
async def proxy(get_server: GetServer, tmp_path: Path) -> AsyncIterator[Proxy]:
    redis = get_server("redis-8.2").url
    model = ModelServer()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    async with serve(model) as model_url:
        (tmp_path / "config.yaml").write_text(CONFIG.format(model=model_url))
        (tmp_path / "auth.py").write_text(AUTH)
        # Callbacks are looked for beside the configuration.
        (tmp_path / "litellm_callback.py").write_text((ROOT / "examples" / "litellm_callback.py").read_text())
        env = {**os.environ, "REDIS_URL": redis, "LEASE": str(LEASE), "PYTHONPATH": str(ROOT)}
        env |= {"LITELLM_MASTER_KEY": "sk-" + "0123456789abcdef" * 4, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        args = ["--config", str(tmp_path / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(  # noqa: ASYNC220 - it only starts
                [PYTHON.with_name("litellm"), *args], cwd=tmp_path, env=env, stdout=log, stderr=log
            )
        try:
            url = f"http://127.0.0.1:{port}"
            await eventually(lambda: alive(url) or process.poll() is not None, 120)
            assert process.poll() is None, (tmp_path / "log").read_text()[-3_000:]
            with Limiter(redis) as outside:
                yield Proxy(url, model, outside)
        finally:
            process.kill()
            process.wait()


def alive(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/liveliness", timeout=1).is_success
    except httpx.HTTPError:
        return False


async def test_a_team_s_requests_in_flight_are_limited_however_they_end(proxy: Proxy) -> None:
    async with proxy.client() as client:
        await whole_answers(client, proxy)
        await streams(client, proxy)
        await refusals(client, proxy)
        await failures(client, proxy)
        await streams_that_are_left(client, proxy)
        await answers_that_are_left(client, proxy)
        # After all that, a team has its two slots, and no more.
        proxy.model.most = 0
        ends = await asyncio.gather(*(ask(client) for _ in range(8)), return_exceptions=True)
        assert sum(not isinstance(end, BaseException) for end in ends) >= 2
        assert proxy.model.most == 2
    await eventually(lambda: proxy.held() == 0)


async def ask(client: openai.AsyncOpenAI, **options: Any) -> Any:  # noqa: ANN401 - the SDK's
    return await client.chat.completions.create(model="stand-in", messages=MESSAGES, **options)


async def whole_answers(client: openai.AsyncOpenAI, proxy: Proxy) -> None:
    for _ in range(5):
        assert (await ask(client)).usage.total_tokens == 15
        await eventually(lambda: proxy.held() == 0, LEASE / 3)


async def streams(client: openai.AsyncOpenAI, proxy: Proxy) -> None:
    for _ in range(5):
        first = True
        async for piece in await ask(client, stream=True):
            assert piece
            # Only of the first: the last may come to hand when the proxy has already ended the request.
            assert not first or proxy.held() == 1
            first = False
        await eventually(lambda: proxy.held() == 0, LEASE / 3)


async def refusals(client: openai.AsyncOpenAI, proxy: Proxy) -> None:
    proxy.model.pause = 0.1
    running = [asyncio.create_task(ask(client)) for _ in range(2)]
    await eventually(lambda: proxy.held() == 2)
    # A client's own call id must not let it in on another's slot.
    with pytest.raises(openai.RateLimitError) as caught:
        await ask(client, extra_headers={"x-litellm-call-id": "mine"})
    assert "slots of team:search" in str(caught.value)
    assert caught.value.response.headers["retry-after"] == "1"
    assert all(end.usage.total_tokens == 15 for end in await asyncio.gather(*running))
    await eventually(lambda: proxy.held() == 0, LEASE / 3)


async def failures(client: openai.AsyncOpenAI, proxy: Proxy) -> None:
    for _ in range(3):
        with pytest.raises(openai.APIStatusError):
            await ask(client, extra_body={"words": "no number"})
        await eventually(lambda: proxy.held() == 0, LEASE / 3)


async def streams_that_are_left(client: openai.AsyncOpenAI, proxy: Proxy) -> None:
    for _ in range(3):
        stream = await ask(client, stream=True)
        await anext(aiter(stream))
        assert proxy.held() == 1
        await stream.close()
        await eventually(lambda: proxy.held() == 0, LEASE / 3)


async def answers_that_are_left(client: openai.AsyncOpenAI, proxy: Proxy) -> None:
    """The proxy tells nobody; the slot comes back when the work has ended, or a lease later."""
    running = [asyncio.create_task(ask(client)) for _ in range(2)]
    await eventually(lambda: proxy.held() == 2)
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    await eventually(lambda: proxy.held() == 0, 3 * LEASE)
