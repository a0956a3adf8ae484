"""The openai and anthropic SDKs, as they are, against a server that answers with our headers: they come when told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic
import openai
import pytest

from pyslot import Decision, Limiter, Permit, Slots, Window
from pyslot.headers import retry_headers

Answer = tuple[int, dict[str, str]]
OPENAI = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
}
ANTHROPIC = {
    "id": "1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


class Api:
    """A model's API with limits in front; it keeps the time of each request."""

    def __init__(self, url: str, requests: list[float]) -> None:
        self.url = url
        self.requests = requests

    def openai(self) -> str:
        """Ask once, with the retries that are the SDK's default."""
        with openai.OpenAI(api_key="k", base_url=f"{self.url}/v1", timeout=30) as client:
            reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
            return str(reply.choices[0].message.content)

    def anthropic(self) -> str:
        with anthropic.Anthropic(api_key="k", base_url=self.url, timeout=30) as client:
            reply = client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hello"}])
            return str(reply.content[0].text)  # type: ignore[union-attr]  # ours is a text


@contextmanager
def api(answer: Callable[[], Answer]) -> Iterator[Api]:
    requests: list[float] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            requests.append(time.monotonic())
            self.rfile.read(int(self.headers["content-length"]))
            status, headers = answer()
            good = OPENAI if "chat" in self.path else ANTHROPIC
            body = json.dumps(good if status == 200 else {"error": {"message": "refused"}}).encode()
            self.send_response(status)
            for name, value in {**headers, "content-type": "application/json", "content-length": len(body)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield Api(f"http://127.0.0.1:{server.server_port}", requests)
        finally:
            server.shutdown()


def decided(decision: Decision[Any]) -> Answer:
    if decision.permit:
        decision.permit.finish()
    return 200 if decision else 429, decision.headers()


@pytest.fixture(params=["openai", "anthropic"])
def ask(request: pytest.FixtureRequest) -> Callable[[Api], str]:
    return getattr(Api, request.param)  # type: ignore[no-any-return]


@pytest.fixture
def limiter() -> Iterator[Limiter]:
    with Limiter("memory://") as limiter:
        yield limiter


def test_a_client_whose_request_is_too_large_asks_once(ask: Callable[[Api], str], limiter: Limiter) -> None:
    tokens = Window("key:a", "tokens", 100)
    with api(lambda: decided(limiter.charge(tokens.cost(101)))) as server:
        with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)):
            ask(server)
        assert len(server.requests) == 1


def test_a_client_that_would_wait_for_an_hour_asks_once(ask: Callable[[Api], str], limiter: Limiter) -> None:
    hourly = Window("key:a", "requests", 1, per=3_600)
    limiter.charge(hourly)
    with api(lambda: decided(limiter.charge(hourly))) as server:
        with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)):
            ask(server)
        assert len(server.requests) == 1


def test_a_client_of_a_full_window_comes_again_once_and_gets_in(ask: Callable[[Api], str], limiter: Limiter) -> None:
    window = Window("key:a", "requests", 1, per=1.5)
    with api(lambda: decided(limiter.try_acquire(window))) as server:
        limiter.charge(window)
        assert ask(server) == "hi"
        assert len(server.requests) == 2, "neither early nor in vain"


def test_a_client_of_full_slots_comes_in_milliseconds(ask: Callable[[Api], str], limiter: Limiter) -> None:
    slots = Slots("key:a", 1)
    for _ in range(20):  # so that there are holds to judge from
        with limiter.acquire(slots):
            time.sleep(0.02)
    decisions: list[Decision[Permit]] = []

    def answer() -> Answer:
        if not decisions:
            with limiter.acquire(slots):
                decisions.append(limiter.try_acquire(slots))
        else:
            decisions.append(limiter.try_acquire(slots))
        return decided(decisions[-1])

    with api(answer) as server:
        assert ask(server) == "hi"
        told = decisions[0].retry_after
        assert told is not None
        first, second = server.requests
        assert told <= second - first < 1, "sooner than the whole second of Retry-After, no sooner than told"


def test_clients_come_no_sooner_than_told_and_give_up(ask: Callable[[Api], str]) -> None:
    with api(lambda: (429, retry_headers(0.25))) as server:
        with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)):
            ask(server)
        assert len(server.requests) == 3, "the SDKs' own two retries"
        assert all(b - a >= 0.25 for a, b in zip(server.requests, server.requests[1:], strict=False))


def test_clients_wait_out_an_outage(ask: Callable[[Api], str]) -> None:
    answers = [(503, retry_headers(0.0)), (200, {})]
    with api(lambda: answers.pop(0)) as server:
        assert ask(server) == "hi"
        first, second = server.requests
        assert second - first >= 1
