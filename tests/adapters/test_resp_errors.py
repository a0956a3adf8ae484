"""What a client's error is taken for, where no server of ours gives it easily."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import valkey
import valkey.cluster
from redis.exceptions import ClusterDownError, RedisClusterException, SlotNotCoveredError

from pyslot.adapters import redis as redis_adapter
from pyslot.adapters import valkey as valkey_adapter
from pyslot.adapters.resp_errors import Verdict

REDIS, VALKEY = redis_adapter.LIBRARY.table, valkey_adapter.LIBRARY.table


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("NOSCRIPT No matching script. Please use EVAL.", Verdict.NOSCRIPT),
        ("LOADING the dataset", Verdict.AWAY),
        ("CLUSTERDOWN Hash slot not served", Verdict.AWAY),
        ("BUSY the server is busy running a script", Verdict.AWAY),
        ("NOREPLICAS Not enough good replicas to write.", Verdict.AWAY),
        ("Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't", Verdict.READONLY),
        ("ERR Error running script (call to f_1): @user_script:1: WRONGTYPE Operation", Verdict.WRONGTYPE),
        ("ERR unknown command", Verdict.DECLINED),
        ("NOPERM User READONLY has no permissions to run the 'evalsha' command", Verdict.DECLINED),
        ("MISCONF the server can't save", Verdict.DECLINED),
    ],
)
def test_plain_errors_are_told_by_their_code(text: str, verdict: Verdict) -> None:
    assert REDIS.judge(redis.ResponseError(text)) is verdict
    assert VALKEY.judge(valkey.ResponseError(text)) is verdict


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (redis.BusyLoadingError("Redis is loading the dataset in memory"), Verdict.AWAY),
        (redis.ConnectionError("max number of clients reached"), Verdict.DROPPED),
        (redis.exceptions.MaxConnectionsError("Too many connections"), Verdict.FULL),
        (redis.ConnectionError("Too many connections"), Verdict.FULL),
        (redis.AuthenticationError("Authentication required."), Verdict.DECLINED),
        (redis.InvalidResponse("Protocol Error: b'HTTP/1.1 400'"), Verdict.AWAY),
        (ClusterDownError("Hash slot not served"), Verdict.AWAY),
        (SlotNotCoveredError('Slot "1" is not covered by the cluster.'), Verdict.AWAY),
        (RedisClusterException("Redis Cluster cannot be connected. Please provide"), Verdict.AWAY),
        (RedisClusterException("EVALSHA - all keys must map to the same key slot"), Verdict.DECLINED),
        (OSError(113, "No route to host"), Verdict.AWAY),
        (TimeoutError(), Verdict.AWAY),
        (redis.DataError("Invalid input of type"), None),
        (TypeError("a bug"), None),
        (RuntimeError("Event loop is closed"), None),
    ],
)
def test_classes_come_before_texts(error: Exception, verdict: Verdict | None) -> None:
    assert REDIS.judge(error) is verdict


def test_another_librarys_errors_are_bugs() -> None:
    assert REDIS.judge(valkey.ConnectionError("x")) is None


def test_what_a_client_loses_between_two_of_its_own_steps_is_an_outage_and_a_bug_is_not() -> None:
    """A node that dies leaves None where another task still looks for a connection."""
    look: Any = valkey.cluster.ValkeyCluster.get_valkey_connection
    with pytest.raises(AttributeError) as torn:
        look(None, None)
    assert valkey_adapter.LIBRARY.table.judge(torn.value) is Verdict.AWAY
    nothing: Any = None
    with pytest.raises(AttributeError) as bug:
        nothing.split()
    assert valkey_adapter.LIBRARY.table.judge(bug.value) is None
