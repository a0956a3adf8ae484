"""What becomes of URLs and of clients that are passed in; no server is asked anything, except by Sentinel."""

from __future__ import annotations

import socket
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pyslot.adapters.base import AsyncStore, Store, open_async_store, open_store
from pyslot.errors import StoreUnavailable, UsageError
from tests.adapters.helpers import KINDS, Kind, close, close_client, echo, run, use
from tests.conftest import PrivateServer
from tests.servers.process import Server

SECRET = "s3cr%23t"


def test_stores_are_what_they_are_declared_to_be(kind: Kind) -> None:
    store = kind.open(kind.url("localhost"))
    assert isinstance(store, Store if kind.blocking else AsyncStore)
    assert (open_store if kind.blocking else open_async_store)(store, 1.0) is store


@pytest.mark.parametrize(
    ("rest", "where"),
    [
        ("://h:1", "h:1"),
        ("://h", "h:6379"),
        ("://[::1]:7/2", "[::1]:7"),
        ("s://h:2/3?ssl_cert_reqs=none", "h:2"),
        ("+unix:///run/x.sock?db=2", "/run/x.sock"),
        ("+cluster://h:3", "h:3"),
        ("+cluster://h:3,i:4", "h:3"),
        ("s+cluster://h:3", "h:3"),
        ("+sentinel://h:4,i:5/main?db=2", "main behind h:4"),
        ("+sentinel://h/main", "main behind h:26379"),
    ],
)
def test_every_form_of_url_is_read_and_none_shows_its_password(kind: Kind, rest: str, where: str) -> None:
    scheme, _, address = rest.partition("://")
    store = kind.open(f"{kind.library}{scheme}://user:{SECRET}@{address}")
    assert repr(store).endswith(f" at {where}>")


def test_options_reach_the_connections(kind: Kind) -> None:
    store: Any = kind.open(kind.url(f"user:{SECRET}@h:1/3?health_check_interval=7&max_connections=9&client_name=x"))
    pool = store._client.connection_pool
    got = {name: pool.connection_kwargs[name] for name in ("username", "password", "db", "client_name")}
    assert got == {"username": "user", "password": "s3cr#t", "db": 3, "client_name": "x"}
    assert pool.connection_kwargs["health_check_interval"] == 7
    assert pool.max_connections == 9


@pytest.mark.parametrize(
    "rest",
    [
        "://user:s3cr#t@h:1",
        "://user:s3cr/t@h:1",
        "://user:s3crt@h:port",
        "://user:s3crt@[h:1",
        "://user:s3crt@h:1?socket_timeout=s3cr",
        "://user:s3crt@h:1?no_such_option=1",
        "+cluster://user:s3crt@h:port",
        "+sentinel://user:s3crt@h:port/main",
        "+nonsense://user:s3crt@h",
        ":/user:s3crt@h",
    ],
)
def test_unreadable_url_is_refused_without_being_shown(kind: Kind, rest: str) -> None:
    with pytest.raises(UsageError) as caught:
        kind.open(kind.library + rest)
    assert "s3cr" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_text_that_is_no_url_is_not_shown() -> None:
    with pytest.raises(UsageError, match="unknown store URL scheme: use one of redis://") as caught:
        open_store("user:s3crt@host:6379", 1.0)
    assert "s3crt" not in str(caught.value)
    with pytest.raises(UsageError, match="unknown store URL scheme 'http': use one of"):
        open_store("http://host", 1.0)


@pytest.mark.parametrize("library", ["redis", "valkey"])
async def test_client_of_the_other_colour_is_sent_to_the_other_limiter(library: str) -> None:
    blocking, other = (kind for kind in KINDS if kind.library == library)
    sync_client, async_client = blocking.client(port=1, **blocking.no_retry), other.client(port=1)
    with pytest.raises(UsageError, match=rf"Limiter can't use {library}'s \w+: pass that to AsyncLimiter"):
        open_store(async_client, 1.0)
    with pytest.raises(UsageError, match=rf"AsyncLimiter can't use {library}'s \w+: pass that to Limiter"):
        open_async_store(sync_client, 1.0)
    async_cluster = other.cluster(host="h", port=1)
    with pytest.raises(UsageError, match="pass that to AsyncLimiter"):
        open_store(async_cluster, 1.0)
    await async_client.aclose()


async def test_only_clients_may_be_passed(kind: Kind) -> None:
    client = kind.client(port=1, **kind.no_retry)
    for wrong in (client.connection_pool, client.pipeline()):
        with pytest.raises(UsageError, match=r"Limiter needs a client, a (Redis|Valkey) or (Redis|Valkey)Cluster, not"):
            kind.open(wrong)
    with pytest.raises(UsageError, match="needs a store URL or a client object, not dict"):
        kind.open({})
    await close_client(client)


def test_patient_blocking_client_is_warned_about(blocking: Kind) -> None:
    hasty = blocking.client(port=1, socket_timeout=0.5, **blocking.no_retry)
    for options, text in (
        ({}, r"(for ever|5 s, 11 times)"),
        ({"socket_timeout": None, **blocking.no_retry}, "for ever"),
        ({"socket_timeout": 2, **blocking.no_retry}, "2 s, 1 times"),
    ):
        with pytest.warns(RuntimeWarning, match=rf"waits for a silent server {text}"):
            blocking.open(blocking.client(port=1, **options), deadline=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        blocking.open(hasty, deadline=1.0)


async def test_asyncio_client_is_bounded_from_outside(nonblocking: Kind) -> None:
    client = nonblocking.client(port=1, socket_timeout=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nonblocking.open(client, deadline=1.0)
    await client.aclose()


@pytest.fixture
def sentinel(private_server: PrivateServer, tmp_path: Path) -> Iterator[tuple[Server, int]]:
    master = private_server("valkey-9.1")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    config = tmp_path / "sentinel.conf"
    config.write_text(f"port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {master.port} 1\n")
    process = subprocess.Popen([master.program, config, "--sentinel"], stdout=subprocess.DEVNULL, cwd=tmp_path)
    while process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            break
    yield master, port
    process.kill()
    process.wait()


async def test_sentinel_url_and_client_find_the_master(kind: Kind, sentinel: tuple[Server, int]) -> None:
    _, port = sentinel
    # The first of the two does not listen.
    store = kind.open(kind.url(f"127.0.0.1:1,127.0.0.1:{port}/main", "+sentinel"))
    assert await run(store, echo()) == [1, 1, 5, 7]
    await close(store)

    store = kind.open(kind.url(f"127.0.0.1:{port}/other", "+sentinel"))
    with pytest.raises(StoreUnavailable, match="other"):
        await run(store, echo())
    await close(store)

    package = __import__(f"{kind.library}.sentinel" if kind.blocking else f"{kind.library}.asyncio.sentinel")
    module = (package if kind.blocking else package.asyncio).sentinel
    watch = module.Sentinel([("127.0.0.1", port)], socket_timeout=0.5)
    client = watch.master_for("main", **kind.no_retry)
    store = kind.open(client)
    assert await run(store, echo()) == [1, 1, 5, 7]
    assert repr(store).endswith("at main behind a sentinel>")
    await close(store)
    assert await use(client.ping())
    for opened in (client, *watch.sentinels):
        await close_client(opened)
