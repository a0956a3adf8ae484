"""From a URL, or from a client that a service already has, to a store over redis-py or valkey-py."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

from pyslot.adapters.resp import AsyncRespStore, Client, LazyCluster, Made, RespStore
from pyslot.adapters.resp_bounds import bounded
from pyslot.adapters.resp_direct import AsyncLine, Direct, Line, is_plain
from pyslot.adapters.resp_errors import ErrorTable
from pyslot.errors import UsageError

_MAX_CONNECTIONS = 100
"""Of a pool we make; callers beyond them wait for a free one. `?max_connections=` in the URL goes first."""


class Colour(NamedTuple):
    """One library's classes for blocking calls, or those for asyncio."""

    limiter: str
    """The name of the limiter that takes these clients."""
    client: Client
    cluster: Client
    node: Client
    pool: Client
    """The pool that waits for a free connection."""
    sentinel: Client
    no_retry: Mapping[str, object]
    """The options that keep a client from sending anything twice; we do that, and only where it is of use."""
    no_cluster_retry: Mapping[str, object]


class Library(NamedTuple):
    """What differs between redis-py and valkey-py."""

    scheme: str
    blocking: Colour
    asyncio: Colour
    table: ErrorTable
    options: Mapping[str, object]
    """For every client we make."""
    direct: Direct | None
    """How to use connections without their client; None where the packer in C is not installed."""

    def line(self, client: Client, *, ours: bool) -> Line | AsyncLine | None:
        """A way past a client of one server, to its connections."""
        if self.direct:
            if is_plain(client, self.blocking.client):
                return Line(client.connection_pool, self.direct, keep=ours)
            if is_plain(client, self.asyncio.client):
                return AsyncLine(client.connection_pool, self.direct, keep=ours)
        return None


def open_sync(library: Library, target: object, deadline: float) -> RespStore:
    if isinstance(target, str):
        make = partial(make_client, library, library.blocking, target, deadline)
        return RespStore(make(), library.table, deadline, make)
    made = _take(target, library.blocking, library.asyncio)
    made = made._replace(line=library.line(made.client, ours=False))
    _warn_if_patient(made, deadline)
    return RespStore(made, library.table, deadline)


def open_async(library: Library, target: object, deadline: float) -> AsyncRespStore:
    if isinstance(target, str):
        make = partial(make_client, library, library.asyncio, target, deadline)
        return AsyncRespStore(make(), library.table, deadline, make, partial(open_sync, library, target, deadline))
    made = _take(target, library.asyncio, library.blocking)
    return AsyncRespStore(made._replace(line=library.line(made.client, ours=False)), library.table, deadline)


def _take(target: object, colour: Colour, other: Colour) -> Made:
    name = f"{type(target).__module__.partition('.')[0]}'s {type(target).__name__}"
    if isinstance(target, (other.client, other.cluster)):
        raise UsageError(f"{colour.limiter} can't use {name}: pass that to {other.limiter}")
    pipeline = any(cls.__name__.endswith("Pipeline") for cls in type(target).__mro__)
    if pipeline or not isinstance(target, (colour.client, colour.cluster)):
        wanted = f"{colour.client.__name__} or {colour.cluster.__name__}"
        raise UsageError(f"{colour.limiter} needs a client, a {wanted}, not {name}")
    if not isinstance(target, colour.cluster):
        return Made(target, _where(_settings(target)), cluster=False, owned=())
    return Made(target, next(iter(target.nodes_manager.startup_nodes), "a cluster"), cluster=True, owned=())


def make_client(library: Library, colour: Colour, url: str, deadline: float) -> Made:
    blocking = colour is library.blocking
    # An asyncio call is bounded from outside, which costs less than a time-out for each read and write.
    options = {**library.options, **_timeouts(deadline if blocking else None), **colour.no_retry}
    try:
        kind, plain, hosts, service = _split(library.scheme, url)
        # It gives up a little sooner than an asyncio call, so that its error tells what was waited for.
        pool = colour.pool.from_url(plain, max_connections=_MAX_CONNECTIONS, timeout=0.8 * deadline, **options)
        settings = dict(pool.connection_kwargs)
        pool.connection_class(**settings)  # else a misspelt option would surface at the first call
    except TypeError as error:
        raise UsageError(f"an option of the store URL does not suit: {error}") from None
    except ValueError:
        # The error is left out, for it may quote what was taken for a port and is part of a password.
        raise UsageError(
            "the store URL can't be read: look at its port and its options, and percent-encode what is special in its "
            "password"
        ) from None
    where = _where(settings)
    if blocking:
        pool.connection_class = bounded(pool.connection_class)
    if kind == "cluster":
        # In a third of it: a silent node costs one time-out, before the client asks the others who took its place.
        options = {**library.options, **_timeouts(deadline / 3), **colour.no_cluster_retry}
        if blocking:
            # The scheme would put its own class of connections in place of ours, so all that it says is said apart.
            options |= {name: value for name, value in settings.items() if name.startswith("ssl")}
            options["connection_class"] = pool.connection_class
            plain = f"redis://{plain.partition('://')[2]}"
        nodes = [colour.node(*host) for host in hosts]

        def make() -> Client:
            return colour.cluster.from_url(plain, startup_nodes=nodes, **options)

        client = LazyCluster(make, deadline) if blocking else make()
        return Made(client, where, cluster=True, owned=[client])
    if kind == "sentinel":
        asked = {**options, **_timeouts(deadline / (len(hosts) + 1))}
        kept = {name: value for name, value in settings.items() if name not in {"host", "port"}}
        sentinel = colour.sentinel(hosts, sentinel_kwargs=asked, **kept)
        client = sentinel.master_for(service)
        if blocking:
            client.connection_pool.connection_class = bounded(client.connection_pool.connection_class)
        where, owned = f"{service} behind {where}", [client, *sentinel.sentinels]
        return Made(client, where, cluster=False, owned=owned, line=library.line(client, ours=True))
    client = colour.client.from_pool(pool)
    return Made(client, where, cluster=False, owned=[client], line=library.line(client, ours=True))


def _split(family: str, url: str) -> tuple[str, str, list[tuple[str, int]], str]:
    """Return the kind of URL, its form for the client library, and what that has no room for: hosts and service."""
    scheme, _, rest = url.partition("://")
    base, _, kind = scheme.partition("+")
    if kind == "unix":
        return kind, f"unix://{rest}", [], ""
    parts = urlsplit(f"//{rest}")
    login, at, hosts = parts.netloc.rpartition("@")
    default = 26379 if kind == "sentinel" else 6379
    found = [urlsplit(f"//{host}") for host in hosts.split(",")]
    nodes = [(host.hostname or "localhost", host.port or default) for host in found]
    if kind not in {"cluster", "sentinel"}:
        return kind, url, nodes, ""
    path = parts.path if kind == "cluster" else ""
    first = hosts.partition(",")[0] if found[0].port else f"{hosts.partition(',')[0]}:{default}"
    return kind, f"{base or family}://{login}{at}{first}{path}?{parts.query}", nodes, parts.path.strip("/")


def _timeouts(seconds: float | None) -> dict[str, object]:
    return {"socket_timeout": seconds, "socket_connect_timeout": seconds}


def _settings(client: Client) -> Mapping[str, Client]:
    """What a client gives its connections."""
    pool = getattr(client, "connection_pool", None)
    holder = pool or (client if hasattr(client, "connection_kwargs") else client.nodes_manager)
    settings: Mapping[str, Client] = holder.connection_kwargs
    return settings


def _where(settings: Mapping[str, Client]) -> str:
    """Where the server is, and nothing else: the settings hold its password."""
    if "connection_pool" in settings:  # Sentinel's connections ask their pool for an address
        return f"{settings['connection_pool'].service_name} behind a sentinel"
    if "path" in settings:
        return str(settings["path"])
    host = settings.get("host", "localhost")
    return f"[{host}]:{settings.get('port', 6379)}" if ":" in host else f"{host}:{settings.get('port', 6379)}"


def _warn_if_patient(made: Made, deadline: float) -> None:
    """A blocking client can't be interrupted from outside: what it was set up for holds."""
    settings = _settings(made.client)
    timeout = settings.get("socket_timeout")
    retry = getattr(made.client, "retry", None) if made.cluster else settings.get("retry")
    retries = getattr(retry, "_retries", getattr(made.client, "cluster_error_retry_attempts", 0))
    if timeout and retries >= 0 and timeout * (1 + retries) <= deadline:
        return
    patience = f"{timeout:g} s, {'for ever' if retries < 0 else 1 + retries} times" if timeout else "for ever"
    warnings.warn(
        f"this {type(made.client).__name__} waits for a silent server {patience}: a call may take longer than the "
        f"deadline of {deadline:g} s. Lower its socket_timeout and its retries, or give the limiter a URL.",
        RuntimeWarning,
        stacklevel=5,  # whoever made the limiter
    )
