"""The LiteLLM proxy with requests in flight limited per team, held to the end of a stream, over all its instances.

    # config.yaml, with this file beside it
    litellm_settings:
      callbacks: litellm_callback.team_concurrency

    pip install 'pyslot-limits[redis]' 'litellm[proxy]'
    REDIS_URL=redis://localhost:6379 litellm --config config.yaml

A permit is kept in its request's own context and nowhere else. Where a request ends in a way of which the proxy tells
no callback, its context goes, and the permit with it: it is renewed no more, and its slot comes back a lease later.
"""

# ruff: noqa: ANN401, ARG002 - the proxy's signatures

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger

from pyslot import AsyncLimiter, AsyncPermit, Slots

IN_FLIGHT = int(os.environ.get("TEAM_IN_FLIGHT", "10"))
"""Requests a team may have in flight, unless its metadata has a `max_in_flight`."""

_permit: ContextVar[AsyncPermit | None] = ContextVar("pyslot_permit", default=None)


class TeamConcurrency(CustomLogger):  # type: ignore[misc]  # litellm is not where types are checked
    """Takes a slot before the call, and gives it back after the answer, the error or the last piece of a stream."""

    def __init__(self, url: str, lease: float = 15.0) -> None:
        super().__init__()
        self.limiter = AsyncLimiter(url)
        self.lease = lease

    def slots(self, team: str, metadata: dict[str, Any]) -> Slots:
        return Slots(f"team:{team}", int(metadata.get("max_in_flight", IN_FLIGHT)), lease=self.lease)

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> None:
        """Not by the call's id: a client may choose that, and two requests of one id would hold one slot."""
        if user_api_key_dict.team_id and _permit.get() is None:
            slots = self.slots(user_api_key_dict.team_id, user_api_key_dict.team_metadata or {})
            decision = await self.limiter.try_acquire(slots)
            if not decision:
                raise HTTPException(429, {"error": decision.explain()}, decision.headers())
            _permit.set(decision.require())

    async def async_post_call_success_hook(self, data: dict[str, Any], user_api_key_dict: Any, response: Any) -> None:
        await self._give_back()

    async def async_post_call_failure_hook(
        self, request_data: Any, original_exception: Any, *args: Any, **more: Any
    ) -> None:
        await self._give_back()

    async def async_post_call_streaming_iterator_hook(
        self,
        user_api_key_dict: Any,
        response: Any,
        request_data: dict[str, Any],
    ) -> AsyncGenerator[Any, None]:
        try:
            async for piece in response:
                yield piece
        finally:
            await self._give_back()

    async def _give_back(self) -> None:
        permit = _permit.get()
        if permit:
            _permit.set(None)
            async with permit:  # which ends it, also where the server is away or this task is being cancelled
                pass


team_concurrency = TeamConcurrency(
    os.environ.get("REDIS_URL", "redis://localhost:6379"), float(os.environ.get("LEASE", "15"))
)
