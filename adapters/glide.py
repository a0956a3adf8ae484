"""The stores over valkey-glide, whose clients multiplex: one of them serves all threads, or all tasks of a loop.

By EVALSHA and EVAL as everywhere, not by its Script class, which would send SCRIPT LOAD to every node.
"""

from __future__ import annotations

import asyncio
import re
import threading
import warnings
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib import import_module
from time import monotonic, sleep
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from glide_shared.exceptions import ClosingError, ConfigurationError, GlideError
from glide_shared.exceptions import ConnectionError as Disconnected
from glide_shared.exceptions import TimeoutError as TimedOut

from pyslot.adapters.base import Land, words
from pyslot.adapters.resp_errors import _WRAPPED, Recovery, Verdict, WrongType, wrong_type
from pyslot.errors import UsageError
from pyslot.loader import Call

Client: TypeAlias = Any
"""A client of either of its two packages; they share no class."""

# One class of errors, with the server's codes reworded, each by its own rule.
_CODES = {
    "NoScriptError": Verdict.NOSCRIPT,
    "ReadOnly": Verdict.READONLY,
    "READONLY": Verdict.READONLY,
    "WRONGTYPE": Verdict.WRONGTYPE,
    "OOM": Verdict.DECLINED,
    **dict.fromkeys(("BusyLoadingError", "MasterDown", "ClusterDown", "TryAgain", "NoReplicas", "BUSY"), Verdict.AWAY),
    **dict.fromkeys(("MASTERDOWN", "CLUSTERDOWN", "LOADING", "TRYAGAIN", "NOREPLICAS"), Verdict.AWAY),
}
_SERVER = "An error was signalled by the server: - "
_SIGNALLED = re.compile(rf"(?:{_SERVER})?(?:ResponseError: )?-?(\w+)")
_LOGIN = re.compile(r"\b(NOAUTH|WRONGPASS|AuthenticationFailed|PermissionDenied|NOPERM)\b")


_CLASSES = (
    (Disconnected, Verdict.AWAY),  # it has tried again by itself
    (TimedOut, Verdict.AWAY),
    (ConfigurationError, Verdict.DECLINED),
    (OSError, Verdict.AWAY),  # a time-out of asyncio is one
)


def judge(error: Exception) -> Verdict | None:
    """What an error of glide means; None for what is neither the server's nor the network's doing."""
    for kind, verdict in _CLASSES:
        if isinstance(error, kind):
            return verdict
    text = str(error)
    if not isinstance(error, GlideError) or (isinstance(error, ClosingError) and "is closed" in text):
        return None
    if "inflight requests" in text:
        return Verdict.FULL
    return _judge(text)


def _judge(text: str) -> Verdict:
    signalled = _SIGNALLED.match(text)
    if signalled and signalled[1] in _CODES:
        return _CODES[signalled[1]]
    wrapped = _WRAPPED.match(text.partition("ResponseError: ")[2])  # Redis 6.2
    if wrapped:
        return _CODES.get(wrapped[1], Verdict.DECLINED)
    return Verdict.DECLINED if text.startswith(_SERVER) or _LOGIN.search(text) else Verdict.AWAY


class GlideStore:
    """Runs scripts through a client of glide_sync, made when first needed; in a forked child it renews itself."""

    def __init__(self, make: Callable[[], Client], *, where: str, deadline: float, cluster: bool, owned: bool) -> None:
        self.cluster = cluster
        self._make = make
        self._where = where
        self._deadline = deadline
        self._owned = owned
        self._client: Client = None
        self.after_fork()

    def after_fork(self) -> None:
        self._lock = threading.Lock()  # the parent's may have been held

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._where}>"

    def run(self, call: Call) -> Sequence[int]:
        recovery = Recovery(call, self._where, monotonic(), self._deadline, drops=0, owned=False)
        while True:
            try:
                reply: Sequence[int] = self._connected().custom_command(recovery.words)
            except Exception as error:  # noqa: BLE001 - the table knows which, and raises the others
                try:
                    pause = recovery.next(error, judge(error))
                except WrongType:
                    raise wrong_type(self._where, call, self._types(call.keys)) from error
                sleep(pause)
            else:
                return reply

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._owned:
            client.close()

    def _connected(self) -> Client:
        if self._client is None:
            with self._lock:
                if self._client is None:
                    self._client = self._make()
        return self._client

    def _types(self, keys: Sequence[bytes]) -> list[bytes]:
        types: list[bytes] = []
        with suppress(Exception):
            for key in keys:
                types.append(self._connected().custom_command([b"TYPE", key]))  # noqa: PERF401 - keep what came before a failure
        return types


class AsyncGlideStore:
    """The same through a client of glide, which belongs to the event loop it was made on: another loop has another."""

    def __init__(
        self,
        make: Callable[[], Awaitable[Client]],
        batch: Callable[[bool], Any],
        *,
        where: str,
        deadline: float,
        cluster: bool,
        owned: bool,
    ) -> None:
        """`batch`: glide's class of many calls for a server of its own; its argument says whether as a transaction."""
        self.cluster = cluster
        self._batch = batch
        self._make = make
        self._where = where
        self._deadline = deadline
        self._owned = owned
        self.after_fork()

    def after_fork(self) -> None:
        self._begin(None)

    def _begin(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._client: Client = None
        self._lock = asyncio.Lock()

    __repr__ = GlideStore.__repr__

    async def run(self, call: Call) -> Sequence[int]:
        return await self._run(call, monotonic())

    async def _run(self, call: Call, began: float) -> Sequence[int]:
        recovery = Recovery(call, self._where, began, self._deadline, drops=0, owned=False)
        while True:
            try:
                async with asyncio.timeout(recovery.left):
                    client = await self._connected()
                    reply: Sequence[int] = await client.custom_command(recovery.words)
            except Exception as error:  # noqa: BLE001 - as above
                try:
                    pause = recovery.next(error, judge(error))
                except WrongType:
                    raise wrong_type(self._where, call, await self._types(call.keys)) from error
                await asyncio.sleep(pause)
            else:
                return reply

    async def run_many(self, calls: Sequence[Call], land: Land) -> None:
        """Run calls in one write. Each that fails is taken up again by itself."""
        began = monotonic()
        replies: Sequence[Any]
        try:
            async with asyncio.timeout(self._deadline):
                client = await self._connected()
                batch = self._batch(False)
                for call in calls:
                    batch.custom_command(words(b"EVALSHA", call.script.sha, call))
                replies = await client.exec(batch, raise_on_error=False)
        except Exception as error:  # noqa: BLE001 - `_run` meets it again, and knows what it is
            replies = [error] * len(calls)
        for at, reply in enumerate(replies):
            try:
                land(at, await self._run(calls[at], began) if isinstance(reply, Exception) else reply)
            except Exception as error:  # noqa: BLE001 - each caller's own, for the others may fare better
                land(at, error)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._owned:
            await client.close()

    async def _connected(self) -> Client:
        if (loop := asyncio.get_running_loop()) is not self._loop:
            left = self._client if self._owned else None
            self._begin(loop)
            if left is not None:
                with suppress(Exception):
                    await left.close()
        if self._client is not None:
            return self._client
        async with self._lock:
            if self._client is None:
                self._client = await self._make()
        return self._client

    async def _types(self, keys: Sequence[bytes]) -> list[bytes]:
        types: list[bytes] = []
        with suppress(Exception):
            async with asyncio.timeout(self._deadline):
                for key in keys:
                    types.append(await self._client.custom_command([b"TYPE", key]))  # noqa: PERF401 - as above
        return types


def open_sync(target: object, deadline: float) -> GlideStore:
    package = _package("glide_sync")
    if not isinstance(target, str):
        cluster, where = _given(package, "Limiter", target)
        patience = (getattr(_settings(target), "request_timeout", None) or 250) / 1000
        if patience > deadline:
            warnings.warn(
                f"this {type(target).__name__} waits for {patience:g} s, longer than the deadline of {deadline:g} s: "
                "lower its request_timeout, or give the limiter a URL.",
                RuntimeWarning,
                stacklevel=4,  # whoever made the limiter
            )
        return GlideStore(lambda: target, where=where, deadline=deadline, cluster=cluster, owned=False)
    make, cluster, where = _config(package, target, deadline)
    return GlideStore(make, where=where, deadline=deadline, cluster=cluster, owned=True)


def open_async(target: object, deadline: float) -> AsyncGlideStore:
    package = _package("glide")
    if not isinstance(target, str):
        cluster, where = _given(package, "AsyncLimiter", target)

        async def taken() -> Client:
            return target

        return AsyncGlideStore(taken, package.Batch, where=where, deadline=deadline, cluster=cluster, owned=False)
    make, cluster, where = _config(package, target, deadline)
    return AsyncGlideStore(make, package.Batch, where=where, deadline=deadline, cluster=cluster, owned=True)


def _package(name: str) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(name)
    except ModuleNotFoundError as error:  # one of the two can be installed without the other
        raise UsageError(f"the glide store needs the package {name!r}: pip install 'pyslot-limits[glide]'") from error


def _given(package: Any, limiter: str, target: Client) -> tuple[bool, str]:  # noqa: ANN401 - a module
    if not isinstance(target, (package.GlideClient, package.GlideClusterClient)):
        other = {"Limiter": "AsyncLimiter", "AsyncLimiter": "Limiter"}[limiter]
        name = f"{type(target).__module__.partition('.')[0]}'s {type(target).__name__}"
        raise UsageError(f"{limiter} can't use {name}: pass that to {other}, or a {package.__name__} client here")
    addresses = getattr(_settings(target), "addresses", None)
    where = f"{addresses[0].host}:{addresses[0].port}" if addresses else "its server"
    return isinstance(target, package.GlideClusterClient), where


def _settings(client: Client) -> object:
    # Not public; without it less is said, and no more.
    return getattr(client, "_config", None) or getattr(client, "config", None)


def _config(package: Any, url: str, deadline: float) -> tuple[Callable[[], Any], bool, str]:  # noqa: ANN401 - a module
    """(what makes the client, is it a cluster, where)."""
    scheme, _, rest = url.partition("://")
    try:
        parts = urlsplit(f"//{rest}")
        login, _, hosts = parts.netloc.rpartition("@")
        found = [urlsplit(f"//{host}") for host in hosts.split(",")]
        addresses = [package.NodeAddress(host.hostname or "localhost", host.port or 6379) for host in found]
        database = int(parts.path.strip("/") or 0)
    except ValueError:
        # The error is left out, for it may quote what was taken for a port and is part of a password.
        raise UsageError("the store URL can't be read: percent-encode what is special in its password") from None
    if parts.query or parts.fragment:
        raise UsageError("a glide URL takes no options: pass a client that has them")
    cluster = scheme.endswith("+cluster")
    kind = "GlideCluster" if cluster else "Glide"
    user, colon, password = login.partition(":")
    milliseconds = max(1, round(deadline * 1000))
    options: dict[str, Any] = {
        "use_tls": scheme.startswith("glides"),
        # In words of its own: 250 ms, the default, is less than a cluster needs to move on.
        "request_timeout": milliseconds,
        "lazy_connect": True,  # a service must be able to start before its server
        "advanced_config": getattr(package, f"Advanced{kind}ClientConfiguration")(connection_timeout=milliseconds),
    }
    if login:
        name, secret = (user or None, password) if colon else (None, user)
        options["credentials"] = package.ServerCredentials(unquote(secret), name and unquote(name))
    if database:
        options["database_id"] = database
    config = getattr(package, f"{kind}ClientConfiguration")(addresses, **options)
    client = getattr(package, f"{kind}Client")
    where = f"{addresses[0].host}:{addresses[0].port}"
    return lambda: client.create(config), cluster, where
