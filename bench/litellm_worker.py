"""LiteLLM's own rate limiter under load; run by `bench.beside` with the Python of an environment that has litellm.

Reads one JSON command a line ({"what": "slot", "tasks": 64, "seconds": 1}) and answers with one JSON line.
"""

import asyncio
import json
import os
import random
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices

import litellm.proxy.hooks.parallel_request_limiter_v3 as v3
from litellm.caching.caching import DualCache
from litellm.caching.redis_cache import RedisCache
from litellm.proxy.utils import InternalUsageCache

MUCH = 10**9


class Load:
    """The limiter as the proxy wires it: a Redis cache behind an in-memory one."""

    def __init__(self, port: int) -> None:
        # Its pool's default is 50: of 64 tasks the last 14 would wait until the load is over.
        cache = RedisCache(host="127.0.0.1", port=port, max_connections=64)
        self.port = port
        self.limiter = v3._PROXY_MaxParallelRequestsHandler_v3(InternalUsageCache(DualCache(redis_cache=cache)))

    async def slot(self) -> None:
        """One slot of one key, acquired and released."""
        id = uuid.uuid4().hex
        answer = await self.limiter.should_rate_limit([self._limits("api_key", "hot", slots=MUCH)], parallel_slot_id=id)
        assert answer["overall_code"] == "OK", answer
        await self.limiter._release_parallel_request_slots({"slot_id": id, "counter_keys": [_gauge("api_key", "hot")]})

    async def refused(self) -> None:
        """A slot of a key that has none."""
        id = uuid.uuid4().hex
        answer = await self.limiter.should_rate_limit([self._limits("api_key", "full", slots=1)], parallel_slot_id=id)
        assert answer["overall_code"] == "OVER_LIMIT", answer

    async def fill(self) -> None:
        """Take the one slot that `refused` asks for, as another process would: this memory knows nothing of it."""
        other = Load(self.port).limiter
        await other.should_rate_limit([self._limits("api_key", "full", slots=1)], parallel_slot_id="there")

    async def settled(self) -> None:
        """Tokens of one team, reserved and settled."""
        limits = [self._limits("team", "settled", tokens=MUCH)]
        answer = await self.limiter.reserve_tpm_tokens(limits, 1_000)
        assert answer["overall_code"] == "OK", answer
        await self._settle((("team", "settled"),))

    async def gateway(self) -> None:
        """What the proxy does for slots, requests and tokens of four subjects: check, reserve, settle."""
        who = [("api_key", zipf(500)), ("team", zipf(50)), ("user", zipf(500)), ("model_per_team", zipf(5))]
        limits = [self._limits(kind, f"{kind}{n}", slots=MUCH, requests=MUCH, tokens=MUCH) for kind, n in who]
        id = uuid.uuid4().hex
        answer = await self.limiter.should_rate_limit(limits, skip_tpm_check=True, parallel_slot_id=id)
        assert answer["overall_code"] == "OK", answer
        answer = await self.limiter.reserve_tpm_tokens(limits, 1_000)
        assert answer["overall_code"] == "OK", answer
        names = [(limit["key"], limit["value"]) for limit in limits]
        await self._settle(tuple(names))
        await self.limiter._release_parallel_request_slots(
            {"slot_id": id, "counter_keys": [_gauge(key, value) for key, value in names]}
        )

    async def _settle(self, names: tuple[tuple[str, str], ...]) -> None:
        await self.limiter.async_increment_tokens_with_ttl_preservation(
            self.limiter._build_reservation_aware_tpm_ops(
                targets=names, reserved_scopes=frozenset(names), actual_tokens=700, reserved_tokens=1_000
            )
        )

    def _limits(
        self, key: str, value: str, *, slots: int | None = None, requests: int | None = None, tokens: int | None = None
    ) -> Any:  # noqa: ANN401  # theirs
        rules = {"max_parallel_requests": slots, "requests_per_unit": requests, "tokens_per_unit": tokens}
        return {"key": key, "value": value, "rate_limit": {k: v for k, v in rules.items() if v} | {"window_size": 60}}


def _gauge(key: str, value: str) -> str:
    return f"{{{key}:{value}}}:max_parallel_requests"


def zipf(n: int) -> int:
    return min(int(random.paretovariate(1.0)), n)


async def load(step: Callable[[], Awaitable[object]], tasks: int, seconds: float) -> dict[str, float]:
    waits: list[float] = []
    end = time.perf_counter() + seconds

    async def work() -> None:
        while (began := time.perf_counter()) < end:
            await step()
            waits.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(tasks)))
    took = time.perf_counter() - began
    waits.sort()
    count = len(waits)
    return {"rate": count / took, "p50": waits[count // 2], "p99": waits[count * 99 // 100], "steps": count}


def scripts() -> dict[str, str]:
    return {"acquire": v3.PARALLEL_ACQUIRE_SCRIPT, "release": v3.PARALLEL_RELEASE_SCRIPT}


async def main() -> None:
    made = Load(int(sys.argv[1]))
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        if asked["what"] == "scripts":
            answer: object = scripts()
        elif asked["what"] == "fill":
            await made.fill()
            answer = None
        else:
            answer = await load(getattr(made, asked["what"]), asked["tasks"], asked["seconds"])
        print("ANSWER", json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
