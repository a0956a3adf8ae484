"""The stores over redis-py."""

from __future__ import annotations

from functools import partial

import redis.asyncio.cluster
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry

from pyslot.adapters import resp_clients
from pyslot.adapters.resp_direct import Direct, Errors
from pyslot.adapters.resp_errors import ErrorTable

try:
    from hiredis import pack_command
except ImportError:  # a client that was passed in does without
    _direct = None
else:
    _errors = Errors(redis.exceptions.ResponseError, redis.exceptions.ReadOnlyError)
    _direct = Direct(pack_command, _errors, named=())

_retry = {"retry": Retry(NoBackoff(), 0)}
_async_retry = {"retry": redis.asyncio.retry.Retry(NoBackoff(), 0)}

LIBRARY = resp_clients.Library(
    scheme="redis",
    blocking=resp_clients.Colour(
        limiter="Limiter",
        client=redis.Redis,
        cluster=redis.cluster.RedisCluster,
        node=redis.cluster.ClusterNode,
        pool=redis.BlockingConnectionPool,
        sentinel=redis.sentinel.Sentinel,
        no_retry=_retry,
        no_cluster_retry=_retry,
    ),
    asyncio=resp_clients.Colour(
        limiter="AsyncLimiter",
        client=redis.asyncio.Redis,
        cluster=redis.asyncio.cluster.RedisCluster,
        node=redis.asyncio.cluster.ClusterNode,
        pool=redis.asyncio.BlockingConnectionPool,
        sentinel=redis.asyncio.sentinel.Sentinel,
        no_retry=_async_retry,
        no_cluster_retry=_async_retry,
    ),
    table=ErrorTable(redis.exceptions, redis.exceptions.RedisClusterException),
    # RESP3 would bring messages nobody asked for, and longer time-outs on their account.
    options={"protocol": 2},
    direct=_direct,
)

open_sync = partial(resp_clients.open_sync, LIBRARY)
open_async = partial(resp_clients.open_async, LIBRARY)
