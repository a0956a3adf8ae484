"""What lost replies, lost keys, old data, long runs and other protocols did to others."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from typing import Any

import pytest
import valkey

from pyslot import Slots, StoreError, StoreUnavailable, Window
from pyslot.adapters.base import open_store
from pyslot.keys import hash_slot
from tests.conftest import GetServer
from tests.contract.places import Place
from tests.contract.scripts import A_DAY
from tests.contract.wire import GAUGE, WINDOW, G, W, acquire, admit, finish, peek, reserve, settle
from tests.scripts.wire import connect
from tests.servers.proxy import read_reply

pytestmark = pytest.mark.asyncio(loop_scope="module")
MINUTE = 60_000
GONE = StoreUnavailable("the test's wire is cut")


# litellm#37539 (review thread)
async def test_a_leaked_reservation_ages_out_however_often_others_reserve(place: Place) -> None:
    await place.run(reserve([W(100)], ("leaked", 60)))
    started = place.now
    while place.now < started + 3 * MINUTE:
        place.now += 7_000
        id = f"p{place.now}"
        await place.run(reserve([W(100)], (id, 1)))
        await place.run(finish([W(100)], (id, 0)))
        used = (await place.run(peek(W(100))))[0]
        assert used == (60 if place.now < started + MINUTE else 0)


# dv/redis-semaphore#49
async def test_losing_any_key_at_any_time_never_blocks_and_never_lets_in_too_many(place: Place) -> None:
    rng = random.Random(49)
    rules = (G(2), W(5))
    held: list[str] = []
    for n in range(60):
        if rng.random() < 0.3:
            key = rng.choice([GAUGE, WINDOW])
            place.backing.drop(key)
            if key == GAUGE:
                held.clear()
        elif held and rng.random() < 0.5:
            await place.run(finish(rules, (held.pop(), 0)))
        elif (await place.run(admit(rules, (f"p{n}", 1))))[0]:
            held.append(f"p{n}")
        assert len(held) <= 2
        slots, _, units, _ = await place.run(peek(*rules))
        assert slots == len(held)
        assert 0 <= units <= 5
    place.backing.drop(GAUGE)
    place.backing.drop(WINDOW)
    assert (await place.run(admit(rules, ("new", 5))))[0] == 1


# litellm#36459, #36541 (reviews)
async def test_a_charge_whose_undo_fails_too_ends_exact_and_touches_nobody_else(place: Place) -> None:
    near, far = sorted(("team:a", "team:b"), key=lambda name: hash_slot(name.encode()))
    limits = (Window(near, "tokens", 100), Window(far, "tokens", 100))
    limiter = place.limiter(group_by_slot=True)
    limiter.limiter._flows.upkeep.backlog._again_after = 0.05
    other = await limiter.try_acquire(*(window.cost(7) for window in limits), id="other")
    place.tap.fail("admit", far, error=GONE, lost=True)
    place.tap.fail("finish", times=3, error=GONE, lost=True)
    with pytest.raises(StoreUnavailable):
        await limiter.try_acquire(*(window.cost(30) for window in limits))
    await place.until(lambda: not len(limiter.limiter._flows.upkeep.backlog))
    assert await limiter.used(*limits) == [7, 7]
    assert other


# litellm#30460
@pytest.mark.parametrize("lost", [True, False], ids=["ran", "never ran"])
async def test_a_reservation_sent_again_under_its_id_is_charged_once(place: Place, lost: bool) -> None:
    limiter, tokens = place.limiter(), Window("team:a", "tokens", 100)
    limiter.limiter._flows.upkeep.backlog._again_after = 0.01
    place.tap.fail("admit", error=GONE, lost=lost)
    with pytest.raises(StoreUnavailable):
        await limiter.try_acquire(tokens.cost(40), id="req-1")
    await place.until(lambda: not limiter.limiter._flows._outage.troubled)
    decision = await limiter.try_acquire(tokens.cost(40), id="req-1")
    await place.until(lambda: not len(limiter.limiter._flows.upkeep.backlog))
    assert await limiter.used(tokens) == [40]
    await limiter.finish(decision.require())
    assert await limiter.used(tokens) == [40]


# litellm#28283, #36926
async def test_ten_thousand_reservations_settled_at_random_sum_to_the_ledger(place: Place) -> None:
    rng = random.Random(28283)
    ledger, open_ = 0, list[str]()
    for batch in range(50):
        ids = [f"p{batch}-{n}" for n in range(200)]
        assert (await place.run(reserve([W("-")], *((id, rng.randrange(2000)) for id in ids))))[::5] == [1] * 200
        open_ += ids
        rng.shuffle(open_)
        ending, open_ = open_[:200], open_[200:]
        figures = [(id, rng.randrange(2000)) for id in ending]
        if batch % 2:
            await place.run(settle([W("-")], *((id, rng.randrange(2000)) for id, _ in figures)))
        assert (await place.run(finish([W("-")], *figures)))[::2] == [2] * 200
        ledger += sum(units for _, units in figures)
    assert not open_
    assert (await place.run(peek(W("-"))))[0] == ledger


# litellm#30039
@pytest.mark.parametrize("lost", [True, False], ids=["ran", "never ran"])
async def test_a_settlement_that_failed_is_applied_exactly_once(place: Place, lost: bool) -> None:
    limiter, tokens = place.limiter(), Window("team:a", "tokens", 1000)
    await limiter.try_acquire(tokens.cost(5), id="other")
    permit = (await limiter.try_acquire(tokens.cost(400))).require()
    permit.settle(tokens.cost(150))
    place.tap.fail("finish", times=2, error=GONE, lost=lost)
    with pytest.raises(StoreUnavailable):
        await limiter.finish(permit)
    await place.until(lambda: not len(limiter.limiter._flows.upkeep.backlog))
    assert await limiter.used(tokens) == [155]


# developerz-ai/wurk#92; Effect-TS/effect-smol#2328; coleifer/huey#632
@pytest.mark.parametrize("name", ["redis-6.2", "redis-8.2", "valkey-9.1"])
async def test_scripts_touch_declared_keys_alone_by_the_servers_own_record(get_server: GetServer, name: str) -> None:
    """MONITOR shows what scripts run."""
    server = get_server(name)
    with (
        connect(server) as wire,
        socket.create_connection((server.host, server.port), 10) as link,
        link.makefile("rb") as lines,
    ):
        link.sendall(b"*1\r\n$7\r\nMONITOR\r\n")
        assert lines.readline() == b"+OK\r\n"
        ran = 0
        for call, _ in A_DAY:
            wire.run(b"EVAL", call.script.text, len(call.keys), *call.keys, *call.head, *call.permits)
            wire.run(b"ECHO", b"done")
            while b'"ECHO"' not in (line := lines.readline()):
                if b" lua]" not in line or b'"TIME"' in line:
                    continue
                words = line.decode().split('"')[1::2]
                keys = words[1:] if words[0].upper() == "UNLINK" else words[1:2]
                assert {key.encode() for key in keys} <= set(call.keys), line
                ran += 1
        assert ran > 2 * len(A_DAY)


# long2ice/fastapi-limiter#68
async def test_a_missing_script_is_known_by_its_text_where_the_class_does_not_tell(get_server: GetServer) -> None:
    server = get_server("valkey-9.1")
    client: Any = valkey.Valkey(port=server.port, socket_timeout=1)
    execute: Callable[..., Any] = client.execute_command
    sent = []

    def old_client(*args: Any) -> Any:  # noqa: ANN401 - as the client's own
        sent.append(args[0])
        if args[0] == "EVALSHA":
            raise valkey.ResponseError("NOSCRIPT No matching script. Please use EVAL.")
        return execute(*args)

    client.execute_command = old_client
    store = open_store(client, 2.0)
    assert list(store.run(acquire([G(1)], "a"))) == [1, 0, 1, MINUTE, 0]
    assert sent == ["EVALSHA", "EVAL"]
    client.close()


# long2ice/fastapi-limiter#6; litellm#40956; fastify/fastify-rate-limit#152; animir#210; redisson#4663, #3224
async def test_no_key_is_ever_without_a_time_to_live(place: Place) -> None:
    """Looked at after every call of every script; a script can't be left in the middle."""
    for call, _ in A_DAY:
        await place.run(call)
        assert all(kept.ttl > 0 for kept in place.look().values()), call.script.name


# nestjs-throttler-storage-redis#1096; AspNetCoreRateLimit#338; aspnetcore-redis-rate-limiting#93
@pytest.mark.parametrize(("key", "kind"), [(GAUGE, "gauge"), (WINDOW, "window")])
async def test_what_another_version_left_under_a_key_is_named_and_left_alone(
    place: Place, key: bytes, kind: str
) -> None:
    place.backing.spoil(key, kind)
    before = place.contents()
    with pytest.raises(StoreError, match=r"pyslot:v1:\{a\}"):
        await place.run(admit([G(2), W(100)], ("a", 1)))
    assert place.contents() == before
    assert (await place.run(acquire([G(2, key=b"pyslot:v1:{b}:s")], "a")))[0] == 1, "others are not concerned"


# bottleneck#112
async def test_state_that_lost_a_part_counts_that_as_nothing(get_server: GetServer) -> None:
    with connect(get_server("valkey-9.1")) as wire:
        for lost in (b"s", b"n", b":a"):
            wire.run(b"UNLINK", WINDOW)
            for call in (reserve([W(100)], ("a", 40)), peek(W(100))):
                wire.run(b"EVAL", call.script.text, 1, *call.keys, *call.head, *call.permits)
            assert wire.run(b"HDEL", WINDOW, lost) == 1
            for call in (
                settle([W(100)], ("a", 10)),
                finish([W(100)], ("a", 5)),
                reserve([W(100)], ("b", 7)),
                finish([W(100)], ("b", 3)),
            ):
                reply = wire.run(b"EVAL", call.script.text, 1, *call.keys, *call.head, *call.permits)
                assert isinstance(reply, list), (lost, call.script.name, reply)
            assert 0 <= int(wire.run(b"HGET", WINDOW, b"n")) <= 100


# redisson#3804
async def test_an_hour_at_twice_the_load_admits_the_limit_in_every_window(place: Place) -> None:
    """Sixty windows of 100, 20 callers each 6 seconds."""
    admitted: dict[int, int] = {}
    started = place.now
    while place.now < started + 60 * MINUTE:
        call = reserve([W(100)], *((f"p{place.now}-{n}", 1) for n in range(20)))
        window = (place.now - started) // MINUTE
        admitted[window] = admitted.get(window, 0) + sum((await place.run(call))[::5])
        place.now += 6_000
    assert admitted == dict.fromkeys(range(60), 100)


# redis-py#4052, #4031; redis-doc#2120; cunla/fakeredis#543, #552
@pytest.mark.parametrize("name", ["redis-6.2", "redis-8.2", "valkey-9.1"])
async def test_replies_are_the_same_bytes_on_both_protocols(get_server: GetServer, name: str) -> None:
    server = get_server(name)
    replies: dict[int, list[bytes]] = {}
    for protocol in (2, 3):
        server.fresh()
        with socket.create_connection((server.host, server.port), 10) as link, link.makefile("rb") as stream:
            link.sendall(b"HELLO %d\r\n" % protocol)
            read_reply(stream)
            replies[protocol] = []
            for call, _ in A_DAY:
                head = (b"%d" % 1_700_000_000_000, *call.head[1:]) if call.head else ()
                words = [b"EVAL", call.script.text, b"%d" % len(call.keys), *call.keys, *head, *call.permits]
                link.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words))
                replies[protocol].append(read_reply(stream))
    assert replies[2] == replies[3]


# flask-limiter#62; planningcenter/developers#606; throttled-py#87; Losant/redis-gcra#3
async def test_who_waits_as_told_for_windows_gets_in_and_no_wait_is_negative(place: Place) -> None:
    rng = random.Random(62)
    limiter = place.limiter()
    windows = [Window("a", meter, 20, per) for meter, per in (("requests", 1.5), ("tokens", 10), ("cents", 60))]
    refused = 0
    for _ in range(150):
        charges = [window.cost(rng.randrange(1, 21)) for window in rng.sample(windows, rng.randrange(1, 4))]
        decision = await limiter.charge(*charges)
        if not decision:
            refused += 1
            assert decision.retry_after is not None
            assert decision.retry_after > 0
            place.now += round(1000 * decision.retry_after)
            assert await limiter.charge(*charges)
        place.now += rng.randrange(3_000)
    assert refused > 40


async def test_who_waits_for_a_lease_to_end_gets_in(place: Place) -> None:
    """The longest that a slot can take to come back by itself; what is told is at most that."""
    limiter, slots = place.limiter(), Slots("a", 1, lease=30)
    await limiter.try_acquire(slots, id="dead")
    refusal = await limiter.try_acquire(slots)
    assert refusal.retry_after is not None
    assert 0 <= refusal.retry_after <= 30
    place.now += 30_000
    assert await limiter.try_acquire(slots)
