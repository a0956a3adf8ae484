"""The stores over valkey-py."""

from __future__ import annotations

from functools import partial

import valkey.asyncio.cluster
import valkey.asyncio.retry
import valkey.asyncio.sentinel
import valkey.cluster
import valkey.sentinel
from valkey.backoff import NoBackoff
from valkey.retry import Retry

from pyslot.adapters import resp_clients
from pyslot.adapters.resp_direct import Direct, Errors
from pyslot.adapters.resp_errors import ErrorTable

try:
    from libvalkey import pack_command
except ImportError:  # a client that was passed in does without
    _direct = None
else:
    _errors = Errors(valkey.exceptions.ResponseError, valkey.exceptions.ReadOnlyError)
    _direct = Direct(pack_command, _errors, named=("EVALSHA",))

_cluster_retry = {"cluster_error_retry_attempts": 0}

LIBRARY = resp_clients.Library(
    scheme="valkey",
    blocking=resp_clients.Colour(
        limiter="Limiter",
        client=valkey.Valkey,
        cluster=valkey.cluster.ValkeyCluster,
        node=valkey.cluster.ClusterNode,
        pool=valkey.BlockingConnectionPool,
        sentinel=valkey.sentinel.Sentinel,
        no_retry={"retry": Retry(NoBackoff(), 0)},
        no_cluster_retry=_cluster_retry,
    ),
    asyncio=resp_clients.Colour(
        limiter="AsyncLimiter",
        client=valkey.asyncio.Valkey,
        cluster=valkey.asyncio.cluster.ValkeyCluster,
        node=valkey.asyncio.cluster.ClusterNode,
        pool=valkey.asyncio.BlockingConnectionPool,
        sentinel=valkey.asyncio.sentinel.Sentinel,
        no_retry={"retry": valkey.asyncio.retry.Retry(NoBackoff(), 0)},
        no_cluster_retry={**_cluster_retry, "connection_error_retry_attempts": 0},
    ),
    table=ErrorTable(valkey.exceptions, valkey.exceptions.ValkeyClusterException),
    options={},
    direct=_direct,
)

open_sync = partial(resp_clients.open_sync, LIBRARY)
open_async = partial(resp_clients.open_async, LIBRARY)
