"""What the doctor makes of a server's figures."""

from __future__ import annotations

from typing import Any

import pytest

from pyslot.cli import checks
from pyslot.cli.checks import Finding, Level

GOOD, WARN, BAD = Level
MB = 1_000_000


def replica(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - as the client parses them
    return {"state": "online", "offset": 10 * MB, "lag": 0} | fields


@pytest.mark.parametrize(
    ("info", "level", "said"),
    [
        ({"redis_version": "6.0.16"}, BAD, "Redis 6.0.16"),
        ({"redis_version": "6.2.14"}, GOOD, "Redis 6.2.14"),
        ({"redis_version": "10.0.0"}, GOOD, "Redis 10.0.0"),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.5"}, GOOD, "Valkey 7.2.5"),
        ({"redis_version": "7.2.4", "valkey_version": "7.1.9"}, BAD, "Valkey 7.1.9"),
        ({}, GOOD, "Redis of unknown version"),
    ],
)
def test_old_versions_are_bad(info: dict[str, Any], level: Level, said: str) -> None:
    found = checks.version(info)
    assert (found.level, found.said) == (level, said)


@pytest.mark.parametrize(
    ("info", "level"),
    [
        ({"maxmemory_policy": "noeviction", "maxmemory": 100}, GOOD),
        ({"maxmemory_policy": "allkeys-lru", "maxmemory": 100}, BAD),
        ({"maxmemory_policy": "volatile-ttl", "maxmemory": 100}, BAD),
        ({"maxmemory_policy": "volatile-lru", "maxmemory": 0}, WARN),
        ({}, WARN),
    ],
)
def test_any_eviction_throws_out_slots(info: dict[str, Any], level: Level) -> None:
    assert checks.eviction(info).level is level


@pytest.mark.parametrize(("used", "level"), [(74, GOOD), (75, WARN), (89, WARN), (90, BAD), (101, BAD)])
def test_memory_that_runs_out_is_told_beforehand(used: int, level: Level) -> None:
    found = checks.memory({"used_memory": used * MB, "maxmemory": 100 * MB})
    assert found.level is level
    assert f"{used} %" in found.said.replace("%", " %")
    assert checks.memory({"used_memory": used * MB, "maxmemory": 0}).level is GOOD


@pytest.mark.parametrize(
    ("info", "save", "level"),
    [
        ({"aof_enabled": 1}, "", GOOD),
        ({"aof_enabled": 1, "aof_last_write_status": "err"}, "", BAD),
        ({"aof_enabled": 0, "rdb_last_bgsave_status": "err"}, "3600 1", BAD),
        ({"aof_enabled": 0, "rdb_last_bgsave_status": "ok"}, "3600 1", WARN),
        ({"aof_enabled": 0}, "", WARN),
        ({"aof_enabled": 0}, None, WARN),
    ],
)
def test_what_a_restart_forgets_is_told(info: dict[str, Any], save: str | None, level: Level) -> None:
    assert checks.persistence(info, save).level is level


@pytest.mark.parametrize(
    ("replicas", "level"),
    [
        ([], GOOD),
        ([replica()], GOOD),
        ([replica(), replica(offset=4 * MB)], WARN),
        ([replica(lag=6)], WARN),
        ([replica(state="wait_bgsave")], WARN),
    ],
)
def test_replicas_that_lag_are_told(replicas: list[dict[str, Any]], level: Level) -> None:
    info = {"master_repl_offset": 10 * MB} | {f"slave{n}": each for n, each in enumerate(replicas)}
    # Redis also has fields whose names merely start so.
    assert checks.replication(info | {"slave_expires_tracked_keys": 0}).level is level


@pytest.mark.parametrize(
    ("info", "level"),
    [
        ({"role": "master"}, GOOD),
        ({"role": "master", "loading": 1}, BAD),
        ({"role": "slave", "master_host": "db-1", "master_port": 6379}, BAD),
    ],
)
def test_a_server_that_takes_no_writes_is_bad(info: dict[str, Any], level: Level) -> None:
    found = checks.role(info)
    assert found.level is level
    assert ("db-1:6379" in found.advice) is (info["role"] == "slave")


@pytest.mark.parametrize(
    ("modes", "cluster", "level"),
    [
        (["standalone"], False, GOOD),
        (["cluster"], False, BAD),
        (["sentinel"], False, BAD),
        (["cluster", "cluster"], True, GOOD),
        (["standalone"], True, BAD),
    ],
)
def test_the_url_must_say_whether_it_is_a_cluster(modes: list[str], cluster: bool, level: Level) -> None:
    infos = {f"{n}": {"redis_mode": mode, "role": "master"} for n, mode in enumerate(modes)}
    assert checks.topology(infos, cluster=cluster).level is level


@pytest.mark.parametrize(
    ("ahead", "unsure", "level"),
    [
        ({"a": 0.9}, 0.01, GOOD),
        ({"a": -1.1}, 0.01, WARN),
        ({"a": 1.4}, 0.5, GOOD),
        ({"a": 0.6, "b": -0.6}, 0.01, WARN),
    ],
)
def test_clocks_apart_are_told(ahead: dict[str, float], unsure: float, level: Level) -> None:
    assert checks.clocks(ahead, unsure).level is level


@pytest.mark.parametrize(
    ("seconds", "level"),
    [([0.001, 0.002, 0.2], GOOD), ([0.001, 0.001, 0.3], WARN), ([0.02] * 3, WARN), ([0.3] * 3, BAD)],
)
def test_slow_answers_are_told(seconds: list[float], level: Level) -> None:
    assert checks.round_trip("PING", seconds).level is level


def test_servers_that_agree_share_a_line() -> None:
    check = checks.eviction
    fine, lru = {"maxmemory_policy": "noeviction"}, {"maxmemory_policy": "allkeys-lru", "maxmemory": 1}
    assert checks.per_node({"a": fine, "b": fine}, check) == [
        Finding(GOOD, "eviction", "noeviction: nothing is thrown out (all 2)")
    ]
    (one,) = checks.per_node({"a": fine, "b": lru, "c": lru}, check)
    assert (one.level, one.said[:6]) == (BAD, "b, c: ")


def test_mixed_versions_are_told() -> None:
    found = list(checks.versions({"a": {"redis_version": "7.0.1"}, "b": {"redis_version": "7.2.0"}}))
    assert [each.level for each in found] == [GOOD, WARN]
