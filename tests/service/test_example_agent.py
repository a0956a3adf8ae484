"""The agent example: the first answer counts, and what is cancelled leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.agent import Agent, Model
from pyslot import AsyncLimiter, Slots
from tests.conftest import GetServer

ROOT = Path(__file__).parents[2]


async def never(question: str) -> tuple[str, int]:
    await asyncio.sleep(3_600)
    raise AssertionError(question)


async def quick(question: str) -> tuple[str, int]:
    await asyncio.sleep(0.01)
    return question.upper(), 7


async def broken(question: str) -> tuple[str, int]:
    raise ConnectionError(question)


async def settled(limiter: AsyncLimiter, agent: Agent, used: int) -> None:
    """Ends of what was cancelled are sent in the background."""
    for _ in range(200):
        free = [not await limiter.count(Slots(f"model:{name}", None)) for name in agent.models]
        (tokens,) = await limiter.peek(agent.tokens)
        if all(free) and tokens.used == used:
            return
        await asyncio.sleep(0.02)
    raise AssertionError((free, tokens.used))


async def test_the_first_answer_counts_and_the_rest_gives_everything_back(get_server: GetServer) -> None:
    models: dict[str, Model] = {"a": never, "b": broken, "c": quick, "d": never}
    async with AsyncLimiter(get_server("valkey-9.1").url) as limiter:
        agent = Agent(limiter, "search", models)
        for _ in range(10):  # more than the three slots of a model
            assert await agent.ask("what?") == "WHAT?"
        await settled(limiter, agent, 70)


async def test_an_agent_that_is_cancelled_itself_gives_everything_back(get_server: GetServer) -> None:
    async with AsyncLimiter(get_server("valkey-9.1").url) as limiter:
        agent = Agent(limiter, "search", {"a": never, "b": never})
        asked = [asyncio.create_task(agent.ask("what?")) for _ in range(8)]  # three get in, five wait
        while await limiter.count(Slots("model:a", None)) < 3:
            await asyncio.wait(asked, timeout=0.01)
        for task in asked:
            task.cancel()
        ends = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        await settled(limiter, agent, 0)


async def test_without_any_answer_the_agent_says_so() -> None:
    async with AsyncLimiter("memory://") as limiter:
        agent = Agent(limiter, "search", {"a": broken})
        with pytest.raises(RuntimeError, match="no model"):
            await agent.ask("what?")
        await settled(limiter, agent, 0)


def test_it_runs_as_a_program(get_server: GetServer) -> None:
    env = {**os.environ, "REDIS_URL": get_server("valkey-9.1").url}
    done = subprocess.run([sys.executable, "-m", "examples.agent"], cwd=ROOT, env=env, capture_output=True, check=True)
    assert done.stdout.decode() == "a quick answer to 'what is a slot?'\n120 tokens used\n"
