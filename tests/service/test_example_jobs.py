"""The Celery example, with real workers over a real server, one of which is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery.result import AsyncResult

from pyslot import Limiter, Slots
from tests.conftest import GetServer

ROOT = Path(__file__).parents[2]
LEASE = 2.0
REPORTS = Slots("reports", None)


@contextmanager
def worker(url: str, name: str, processes: int) -> Iterator[subprocess.Popen[bytes]]:
    pool = ["--concurrency", str(processes), "--pool", "prefork"]
    args = ["-A", "examples.jobs", "worker", *pool, "-n", name, "--loglevel", "error"]
    env = {**os.environ, "REDIS_URL": url, "LEASE": str(LEASE)}
    # A session of its own, for it has children that are to be killed with it.
    process = subprocess.Popen([sys.executable, "-m", "celery", *args], cwd=ROOT, env=env, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def jobs(get_server: GetServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Any]]:
    """(the server's URL, the example as a client sees it)."""
    url = get_server("redis-8.2").url
    monkeypatch.setenv("REDIS_URL", url)
    monkeypatch.delitem(sys.modules, "examples.jobs", raising=False)
    import examples.jobs as module

    yield url, module
    module.limiter.close()
    module.app.close()
    monkeypatch.delitem(sys.modules, "examples.jobs", raising=False)


@pytest.mark.slow
def test_two_jobs_run_at_a_time_and_a_killed_worker_s_slots_come_back(jobs: tuple[str, Any]) -> None:
    url, module = jobs
    with Limiter(url) as limiter, worker(url, "a", 2) as doomed:
        for n in range(2):
            module.report.delay(n, 3_600)
        wait_for(lambda: limiter.count(REPORTS) == 2, "both long jobs run")
        results: list[AsyncResult] = [module.report.delay(n, 0.1) for n in range(6)]
        with worker(url, "b", 3):
            time.sleep(LEASE + 1)
            assert not any(each.ready() for each in results), "leases are renewed while their worker lives"
            os.killpg(doomed.pid, signal.SIGKILL)
            most = 0

            def done() -> bool:
                nonlocal most
                most = max(most, limiter.count(REPORTS))
                return all(each.ready() for each in results)

            wait_for(done, "the other worker does the rest")
            assert sorted(each.get(timeout=1) for each in results) == list(range(6))
    assert most == 2


def wait_for(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 40
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)
