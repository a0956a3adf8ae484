"""Encrypted connections, users that may do little, and secrets that stay where they are."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyslot import AsyncLimiter, Limiter, LimitExceeded, Slots, StoreError, StoreUnavailable, UsageError, Window, calls
from pyslot.keys import Naming, hash_slot
from pyslot.kinds import Limit
from tests.conftest import GetServer, PrivateServer
from tests.life.helpers import until
from tests.servers.process import Server

TLS = Path(__file__).parent / "tls"
SLOTS, TOKENS = Slots("key:a", 2, lease=0.6), Window("key:a", "tokens", 100)
MINIMAL = [
    *("resetchannels", "-@all", "+eval", "+evalsha", "+time", "+type", "+exists", "+pttl", "+pexpire", "+unlink"),
    *("+zadd", "+zcard", "+zcount", "+zmscore", "+zscore", "+zrange", "+zrangebyscore", "+zrem", "+zremrangebyrank"),
    *("+hset", "+hmget", "+hdel"),
]
"""What docs/operations.md says a user needs; a test there compares."""


@pytest.fixture
def encrypted(private_server: PrivateServer) -> Server:
    """A server that talks TLS at a port of its own, and takes a password."""
    server = private_server("redis-7.0", "--tls-port", "0")
    port = server.port + 1
    for name, value in (
        ("tls-cert-file", TLS / "server.crt"),
        ("tls-key-file", TLS / "server.key"),
        ("tls-ca-cert-file", TLS / "server.crt"),
        ("tls-auth-clients", "no"),
        ("tls-port", port),
    ):
        server.command("CONFIG", "SET", name, str(value))
    server.command("ACL", "SETUSER", "app", "on", ">s3cr3t", "~pyslot:*", *MINIMAL)
    return server


@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
async def test_tls_and_a_minimal_user_work_in_both_colours(encrypted: Server, scheme: str) -> None:
    url = f"{scheme}://app:s3cr3t@127.0.0.1:{encrypted.port + 1}?ssl_ca_certs={TLS / 'server.crt'}"
    with Limiter(url, deadline=3) as limiter, limiter.acquire(SLOTS, TOKENS.cost(5)):
        async with AsyncLimiter(url, deadline=3) as other, other.acquire(SLOTS, TOKENS.cost(5)):
            assert limiter.count(SLOTS) == 2
    untrusted = f"{scheme}://app:s3cr3t@127.0.0.1:{encrypted.port + 1}"
    with Limiter(untrusted, deadline=0.5) as limiter, pytest.raises(StoreUnavailable, match="CERTIFICATE_VERIFY"):
        limiter.count(SLOTS)


@pytest.mark.parametrize("name", ["redis-6.2", "redis-8.2", "valkey-9.1"])
def test_the_minimal_user_can_do_all_there_is(private_server: PrivateServer, name: str) -> None:
    """flask-limiter#398, animir#285, upstash#18: nobody knew which commands a user must have."""
    server = private_server(name)
    server.command("ACL", "SETUSER", "app", "on", ">s3cr3t", "~pyslot:*", *MINIMAL)
    with Limiter(f"redis://app:s3cr3t@{server.address}", deadline=2) as limiter:
        for _ in range(2):
            permit = limiter.try_acquire(SLOTS, TOKENS.cost(50), Window("key:a", "requests", 9, per=0.1)).require()
            assert not limiter.try_acquire(SLOTS, TOKENS.cost(101))
            limiter.charge(TOKENS.cost(1))
            limiter.peek(SLOTS, TOKENS)
            limiter.count(SLOTS)
            assert limiter._store.run(calls.renew(SLOTS.wire(Naming()), 600, [permit.wire_id, b"other"]))[0] == 2
            permit.settle(TOKENS.cost(3))
            permit.finish()
            limiter.reset(SLOTS, TOKENS)
            server.command("SCRIPT", "FLUSH")
        server.command("SET", "pyslot:v1:{key:a}:s", "x")
        with pytest.raises(StoreError, match="holds a string where a zset belongs"):
            limiter.try_acquire(SLOTS)
        assert limiter.incidents["outages"] == 0
    other = Limiter(f"redis://app:s3cr3t@{server.address}", prefix="other")
    with other, pytest.raises(StoreError, match="permission"):
        other.try_acquire(SLOTS)


def test_the_documented_user_is_the_one_that_is_tested() -> None:
    page = Path(__file__).parents[2] / "docs" / "operations.md"
    assert f"ACL SETUSER pyslot on >a-password ~pyslot:* {' '.join(MINIMAL)}\n" in page.read_text("utf-8")


@pytest.mark.parametrize("command", [word for word in MINIMAL if word.startswith("+") and word != "+type"])
def test_the_minimal_user_has_nothing_to_spare(get_server: GetServer, command: str) -> None:
    server = get_server("valkey-9.1")
    server.command("ACL", "SETUSER", "less", "reset", "on", ">s3cr3t", "~pyslot:*", *MINIMAL, command.replace("+", "-"))
    try:
        with Limiter(f"redis://less:s3cr3t@{server.address}") as limiter, pytest.raises(StoreError):
            _use_everything(limiter, server)
    finally:
        server.command("ACL", "DELUSER", "less")


def _use_everything(limiter: Limiter, server: Server) -> None:
    server.command("SCRIPT", "FLUSH")
    short, brief = Slots("key:b", 2, lease=0.001), Window("key:b", "tokens", 100, per=0.001)
    for slots in (SLOTS, short):
        permit = limiter.try_acquire(slots, TOKENS.cost(5), brief.cost(1)).require()
        limiter.try_acquire(slots).require().finish()
        limiter._store.run(calls.renew(slots.wire(Naming()), 1, [permit.wire_id, b"other"]))
        limiter.peek(slots, TOKENS)
        limiter.count(slots)
        while limiter.count(short):
            pass
        limiter.try_acquire(short, brief.cost(1)).require().finish()
        permit.settle(TOKENS.cost(3))
        permit.finish()
    limiter.reset(SLOTS, TOKENS, short, brief)


PASSWORD = "s3cr3t-p4ss"
SUBJECT = "sk-live-0123456789"


def test_nothing_secret_is_in_logs_reprs_or_errors(
    private_server: PrivateServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = private_server("valkey-9.1")
    server.command("ACL", "SETUSER", "app", "on", f">{PASSWORD}", "~pyslot:*", *MINIMAL)
    shown: list[str] = []
    for scheme in ("redis", "valkey", "redis+cluster"):
        with Limiter(f"{scheme}://app:{PASSWORD}@{server.address}", deadline=0.3, hash_names=True) as limiter:
            shown.append(repr(limiter))
            slots = Slots(SUBJECT, 1, lease=0.3)
            try:
                permit = limiter.try_acquire(slots, id="p").require()
            except StoreError as error:  # no cluster
                shown += traceback.format_exception(error)
                continue
            server.command("DEL", slots.wire(limiter._flows.naming).key)
            until(lambda limiter=limiter: limiter.incidents["rejoined"])  # type: ignore[misc]
            with pytest.raises(LimitExceeded) as refused, limiter.acquire(slots):
                pass
            server.pause()
            with pytest.raises(StoreUnavailable) as away:
                limiter.try_acquire(slots)
            server.resume()
            shown += [str(refused.value), repr(refused.value.decision), *traceback.format_exception(away.value)]
            shown += [repr(permit)]
    with pytest.raises(UsageError) as unreadable:
        Limiter(f"redis://app:{PASSWORD}@host:port")
    shown += traceback.format_exception(unreadable.value)
    for text in (*shown, caplog.text):
        assert PASSWORD not in text
        assert SUBJECT not in _without_source(text)


def _without_source(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if "SUBJECT" not in line)


NAMES = st.text(st.characters(codec=None), min_size=1, max_size=40) | st.sampled_from(
    ["{", "}", "{}", "}{", "a}b", "%7D", "%", "\x00", "\n", "a:s", "a:w:tokens:60000", ":", "\ud800", "x" * 10_000]
)
LIMITS: st.SearchStrategy[Limit] = st.builds(Slots, NAMES, st.just(5), tag=st.none() | NAMES) | st.builds(
    Window, NAMES, NAMES, st.just(5), st.just(60), tag=st.none() | NAMES
)


@given(LIMITS, LIMITS)
def test_no_two_limits_share_a_key_and_none_leaves_its_hash_tag(one: Limit, other: Limit) -> None:
    naming = Naming()
    keys = [limit.wire(naming).key for limit in (one, other)]
    names = [
        (type(limit), limit.subject, limit.tag, getattr(limit, "meter", ""), getattr(limit, "per_ms", 0))
        for limit in (one, other)
    ]
    assert (keys[0] == keys[1]) is (names[0] == names[1])
    for limit, key in zip((one, other), keys, strict=True):
        tag = key[len(b"pyslot:v1:{") : key.index(b"}")]
        assert hash_slot(key) == hash_slot(tag)
        if limit.tag is None and not set(limit.subject) & set("{}%"):
            assert tag == limit.subject.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("subject", ["a}b{c", "\x00", "a\r\nb", "ключ", "🙂", "\udcff", "x" * 10_000, "a b", "'\"\\"])
def test_any_subject_works_on_a_server(get_server: GetServer, subject: str) -> None:
    server = get_server("redis-8.2")
    slots, tokens = Slots(subject, 1), Window(subject, subject, 100)
    with Limiter(server.url) as limiter:
        with limiter.acquire(slots, tokens.cost(60), id=subject[:30]):
            assert not limiter.try_acquire(slots)
            assert limiter.try_acquire(Slots(subject + "x", 1)).require().finish().released
        assert limiter.count(slots) == 0
        assert limiter.peek(tokens)[0].used == 60
