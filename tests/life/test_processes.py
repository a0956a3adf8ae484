"""Many processes, threads and loops: each use works, or fails with an error that says what to do."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import redis.asyncio

from pyslot import AsyncLimiter, Limiter, Slots, UsageError
from pyslot.adapters.memory import MemoryStore
from pyslot.testing import World
from tests.conftest import GetServer
from tests.life.helpers import AsyncTapped, Tapped, python, until

SLOTS = Slots("key:a", 2, lease=2)
URLS = pytest.mark.parametrize("scheme", ["redis", "valkey"])


def in_child(work: Callable[[], object]) -> str:
    """What became of `work` in a forked child: "" or its exception."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks among threads, which is what is tested
        pid = os.fork()
    if pid == 0:
        try:
            work()
            os.write(writer, b"done")
        except BaseException as error:  # noqa: BLE001 - the parent looks at it
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    assert text, "the child died"
    return "" if text == "done" else text


def check(condition: object, text: str = "") -> None:
    if not condition:
        raise AssertionError(text)


@URLS
def test_a_forked_child_works_and_leaves_its_parents_permits_alone(get_server: GetServer, scheme: str) -> None:
    server = get_server("valkey-9.1")
    with Limiter(f"{scheme}://{server.address}", deadline=10) as limiter, limiter.acquire(SLOTS) as permit:

        def child() -> None:
            with limiter.acquire(SLOTS, wait=2):
                check(limiter.count(SLOTS) == 2)
                time.sleep(0.9)  # long enough for a renewal
            try:
                permit.finish()
            except UsageError as error:
                check("belongs to the process that forked" in str(error))
            else:
                raise AssertionError("a child ended its parent's permit")
            with permit:
                pass
            check(limiter.count(SLOTS) == 1)
            limiter.close()

        for _ in range(3):
            assert in_child(child) == ""
        assert limiter.count(SLOTS) == 1
        assert not permit.lost


def test_a_forked_child_does_not_renew_its_parents_permits(get_server: GetServer) -> None:
    """Else a slot would live for as long as any child of its dead holder."""
    server = get_server("valkey-9.1")
    code = """
import os, sys, time
from pyslot import Limiter, Slots
limiter = Limiter(sys.argv[1], deadline=10)
permit = limiter.try_acquire(Slots("key:a", 2, lease=0.6)).require()
other = limiter.try_acquire(Slots("key:b", 2, lease=0.6)).require()
if os.fork() == 0:
    mine = limiter.try_acquire(Slots("key:c", 2, lease=0.6)).require()
    print("forked", flush=True)
    time.sleep(20)
time.sleep(20)
"""
    with python(code, server.url) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == "forked\n"
        children = _children(parent.pid)
        parent.kill()
        with Limiter(server.url, deadline=10) as limiter:
            until(lambda: limiter.count(SLOTS) == 0)
            time.sleep(0.8)
            assert limiter.count(Slots("key:c", 2)) == 1, "its own is renewed"
        for pid in children:
            os.kill(pid, 9)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_fork_among_busy_threads_locks_nothing_up() -> None:
    with Limiter(MemoryStore()) as limiter:
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                with limiter.acquire(Slots("key:b", None, lease=0.05)):
                    pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()

        def child() -> None:
            for _ in range(20):
                with limiter.acquire(Slots("key:c", 5, lease=0.05)):
                    pass

        try:
            for _ in range(20):
                assert in_child(child) == ""
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_limiters_in_driven_time_may_be_forked_too() -> None:
    with World().limiter() as limiter:
        limiter.try_acquire(SLOTS).require()

        def child() -> None:
            limiter.after_fork()  # again: where the fork calls it, an exception is only logged
            check(limiter.count(SLOTS) == 1)

        assert in_child(child) == ""


@URLS
def test_an_asynchronous_limiter_works_in_a_forked_child(get_server: GetServer, scheme: str) -> None:
    server = get_server("valkey-9.1")
    limiter = AsyncLimiter(f"{scheme}://{server.address}", deadline=10)

    async def use() -> None:
        async with limiter.acquire(SLOTS):
            assert await limiter.count(SLOTS) >= 1

    async def parent() -> None:
        async with limiter.acquire(SLOTS):

            def child() -> None:
                asyncio.events._set_running_loop(None)  # the parent's, which the fork has copied
                asyncio.run(use())

            assert await asyncio.to_thread(in_child, child) == ""
            assert await limiter.count(SLOTS) == 1
        await limiter.aclose()

    asyncio.run(parent())


def test_a_client_from_before_a_fork_is_refused_with_advice(get_server: GetServer) -> None:
    server = get_server("valkey-9.1")

    async def parent() -> None:
        client = redis.asyncio.Redis.from_url(server.url)
        async with AsyncLimiter(client) as limiter:
            await limiter.count(SLOTS)

            def child() -> None:
                asyncio.events._set_running_loop(None)
                asyncio.run(limiter.count(SLOTS))

            text = await asyncio.to_thread(in_child, child)
            assert text.startswith("UsageError: ")
            assert "make both anew in every process" in text
            assert await limiter.count(SLOTS) == 0
        await client.aclose()

    asyncio.run(parent())


@URLS
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_two_loops_one_after_another(get_server: GetServer, scheme: str) -> None:
    """The first leaves its connections behind, which Python reports."""
    server = get_server("valkey-9.1")
    limiter = AsyncLimiter(f"{scheme}://{server.address}", deadline=10)

    async def use() -> None:
        async with limiter.acquire(SLOTS):
            await asyncio.sleep(0.3)
            assert await limiter.count(SLOTS) == 1

    for _ in range(3):
        asyncio.run(use())
        gc.collect()
    asyncio.run(limiter.aclose())
    with Limiter(server.url, deadline=10) as fresh:
        assert fresh.count(SLOTS) == 0


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_permit_held_over_the_end_of_a_loop_is_finished_on_the_next(get_server: GetServer) -> None:
    server = get_server("valkey-9.1")
    limiter = AsyncLimiter(server.url, deadline=10)

    async def take() -> object:
        return (await limiter.try_acquire(SLOTS)).require()

    async def finish(permit: object) -> None:
        await limiter.count(SLOTS)  # whoever uses a limiter on a loop has its leases renewed there
        await asyncio.sleep(2.6)
        assert (await permit.finish()).released  # type: ignore[attr-defined]
        await limiter.aclose()

    permit = asyncio.run(take())
    asyncio.run(finish(permit))
    gc.collect()


async def test_two_loops_at_once_are_refused_with_advice() -> None:
    limiter = AsyncLimiter("memory://")
    await limiter.count(SLOTS)
    with pytest.raises(UsageError, match="make one limiter for each loop"):
        await asyncio.to_thread(asyncio.run, limiter.count(SLOTS))
    await limiter.aclose()


async def test_a_client_of_an_ended_loop_is_refused_with_advice(get_server: GetServer) -> None:
    class Ended(AsyncTapped):
        async def run(self, call: object) -> list[int]:
            raise NotImplementedError

    from pyslot.adapters.base import open_async_store

    client = redis.asyncio.Redis.from_url(get_server("valkey-9.1").url)
    store = open_async_store(client, 1.0)

    async def of_another_loop(*_: object) -> list[int]:
        raise RuntimeError("got Future <Future pending> attached to a different loop")

    store._execute = of_another_loop  # type: ignore[attr-defined]
    async with AsyncLimiter(store) as limiter:
        with pytest.raises(UsageError, match="event loop that has ended"):
            await limiter.count(SLOTS)
    await client.aclose()


async def test_a_blocked_loop_keeps_its_leases_with_a_thread(get_server: GetServer) -> None:
    url, slots = get_server("valkey-9.1").url, Slots("key:a", 2, lease=1.5)
    async with AsyncLimiter(url, threaded=True, deadline=10) as limiter, limiter.acquire(slots) as permit:
        time.sleep(3)  # noqa: ASYNC251 - what a careless handler does
        await asyncio.sleep(0.8)
        assert not permit.lost
        assert await limiter.count(slots) == 1
    async with AsyncLimiter(url, deadline=10) as limiter, limiter.acquire(slots) as permit:
        time.sleep(3)  # noqa: ASYNC251 - as above
        await asyncio.sleep(0.8)
        assert permit.lost, "without one they are lost"


async def test_a_thread_needs_a_url(get_server: GetServer) -> None:
    client = redis.asyncio.Redis.from_url(get_server("valkey-9.1").url)
    with pytest.raises(UsageError, match="give the limiter a URL"):
        AsyncLimiter(client, threaded=True)
    await client.aclose()


@URLS
def test_many_threads_share_a_limiter(get_server: GetServer, scheme: str) -> None:
    server = get_server("valkey-9.1")
    inside, most, lock = 0, 0, threading.Lock()
    slots = Slots("key:a", 3)

    with Limiter(f"{scheme}://{server.address}", deadline=10) as limiter:

        def work() -> None:
            nonlocal inside, most
            for _ in range(30):
                with limiter.acquire(slots, wait=60):
                    with lock:
                        inside += 1
                        most = max(most, inside)
                    time.sleep(0.001)
                    with lock:
                        inside -= 1

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == 3
        assert limiter.count(slots) == 0


async def test_use_after_close_is_refused_with_advice() -> None:
    limiter, other = Limiter("memory://"), AsyncLimiter("memory://")
    permit, another = limiter.try_acquire(SLOTS).require(), (await other.try_acquire(SLOTS)).require()
    limiter.close()
    await other.aclose()
    for use in (lambda: limiter.try_acquire(SLOTS), lambda: limiter.count(SLOTS), permit.finish):
        with pytest.raises(UsageError, match="this limiter is closed: make a new one"):
            use()
    with pytest.raises(UsageError, match="this limiter is closed: make a new one"):
        await other.try_acquire(SLOTS)
    with pytest.raises(UsageError, match="this limiter is closed: make a new one"):
        await another.finish()
    with permit:
        pass
    async with another:
        pass


EXITS = {
    "sync": """
limiter = Limiter(url, deadline=10)
held = limiter.try_acquire(slots).require()
""",
    "async": """
import asyncio
limiter = AsyncLimiter(url, deadline=10)
async def main():
    global held
    held = (await limiter.try_acquire(slots)).require()
asyncio.run(main())
""",
    "async cancelled": """
import asyncio
limiter = AsyncLimiter(url, deadline=10)
async def work():
    async with limiter.acquire(slots):
        await asyncio.sleep(60)
async def main():
    asyncio.ensure_future(work())
    await asyncio.sleep(0.2)
asyncio.run(main())
""",
    "async threaded": """
import asyncio
limiter = AsyncLimiter(url, threaded=True, deadline=10)
async def main():
    global held
    held = (await limiter.try_acquire(slots)).require()
asyncio.run(main())
""",
    "exception": """
limiter = Limiter(url, deadline=10)
held = limiter.try_acquire(slots).require()
raise SystemExit(3)
""",
    "thread": """
import threading, time
limiter = Limiter(url, deadline=10)
def work():
    with limiter.acquire(slots):
        inside.set()
        time.sleep(60)
inside = threading.Event()
threading.Thread(target=work, daemon=True).start()
inside.wait()
""",
}


@pytest.mark.parametrize("how", EXITS)
def test_permits_held_at_the_interpreters_exit_end_with_it(get_server: GetServer, how: str) -> None:
    server = get_server("valkey-9.1")
    head = "import sys\nfrom pyslot import AsyncLimiter, Limiter, Slots\nurl = sys.argv[1]\n"
    code = f"{head}slots = Slots('key:a', 1, lease=60)\n{EXITS[how]}"
    with python(code, server.url) as process:
        _, errors = process.communicate(timeout=20)
    assert process.returncode == (3 if how == "exception" else 0), errors
    assert "Traceback" not in errors
    with Limiter(server.url, deadline=10) as limiter:
        assert limiter.count(Slots("key:a", 1)) == 0, errors


def test_clean_up_that_is_waiting_at_the_interpreters_exit_is_sent(get_server: GetServer) -> None:
    server = get_server("valkey-9.1")
    code = """
import asyncio, sys
from pyslot import AsyncLimiter, Slots, StoreUnavailable
limiter = AsyncLimiter(sys.argv[1], deadline=10)
async def main():
    permit = (await limiter.try_acquire(Slots('key:a', 1, lease=60))).require()
    run, limiter._send = limiter._send, lost
    try:
        await permit.finish()
    except StoreUnavailable:
        limiter._worker._task.cancel()  # as if the loop had ended before it had its turn
        limiter._worker._closed = True
async def lost(call):
    raise StoreUnavailable("lost")
asyncio.run(main())
"""
    with python(code, server.url) as process:
        _, errors = process.communicate(timeout=20)
    assert "Traceback" not in errors
    with Limiter(server.url, deadline=10) as limiter:
        assert limiter.count(Slots("key:a", 1)) == 0, errors


def test_a_limiter_that_nobody_has_any_more_ends_its_thread() -> None:
    before = set(threading.enumerate())
    limiter = Limiter(Tapped())
    limiter.try_acquire(Slots("key:a", 1)).require().finish()
    (thread,) = set(threading.enumerate()) - before
    del limiter
    gc.collect()
    until(lambda: not thread.is_alive())


def test_an_embedded_server_is_stopped_while_a_forked_child_lives() -> None:
    limiter = Limiter("embedded://")
    limiter.count(SLOTS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks among threads
        pid = os.fork()
    if pid == 0:  # holds a copy of all that the parent has open
        time.sleep(20)
        os._exit(0)
    try:
        began = time.monotonic()
        limiter.close()
        assert time.monotonic() - began < 4
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
