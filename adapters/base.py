"""What a store is, and how a URL or a client object becomes one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Protocol, TypeAlias, cast, runtime_checkable

from pyslot.errors import UsageError
from pyslot.loader import Call


@runtime_checkable
class Store(Protocol):
    """Runs script calls, blocking. Safe to share between threads."""

    cluster: bool
    """True where the keys of one call must share a hash slot."""

    def run(self, call: Call) -> Sequence[int]:
        """Run one call and return the script's reply.

        Raises `StoreUnavailable` where the outcome is unknown, `StoreError` where the server declined.
        """

    def close(self) -> None:
        """Free what this store opened itself; a client that was passed in stays as it is."""


@runtime_checkable
class AsyncStore(Protocol):
    """Runs script calls without blocking the event loop."""

    cluster: bool

    async def run(self, call: Call) -> Sequence[int]: ...

    async def aclose(self) -> None: ...


def words(name: str | bytes, what: bytes, call: Call) -> list[str | bytes]:
    """A script call as a command: EVALSHA of its SHA1, or EVAL of its text.

    The number of keys is text too: the clients' packers in C crash where a signal's handler raises while they print
    one.
    """
    return [name, what, b"%d" % len(call.keys), *call.keys, *call.head, *call.permits]


Land: TypeAlias = Callable[[int, Sequence[int] | Exception], None]
"""Takes the answer to a call, by the call's place among those sent."""


@runtime_checkable
class PipelineStore(AsyncStore, Protocol):
    """An asynchronous store that can send many calls in one write: to one server, for clusters' clients can't."""

    async def run_many(self, calls: Sequence[Call], land: Land) -> None:
        """Run calls in order, and `land` what each is answered as soon as it is: a reply or an error."""


_SCHEMES = {
    "redis": "redis",
    "rediss": "redis",
    "redis+unix": "redis",
    "redis+cluster": "redis",
    "rediss+cluster": "redis",
    "redis+sentinel": "redis",
    "valkey": "valkey",
    "valkeys": "valkey",
    "valkey+unix": "valkey",
    "valkey+cluster": "valkey",
    "valkeys+cluster": "valkey",
    "valkey+sentinel": "valkey",
    "glide": "glide",
    "glides": "glide",
    "glide+cluster": "glide",
    "glides+cluster": "glide",
    "memory": "memory",
    "embedded": "embedded",
}
"""URL scheme -> adapter module, which offers `open_sync(target, deadline)` and `open_async(target, deadline)`."""

_LIBRARIES = {"redis": "redis", "valkey": "valkey", "glide": "glide", "glide_sync": "glide"}
"""Client library whose objects may be passed in place of a URL -> adapter module."""


def open_store(target: object, deadline: float) -> Store:
    """Make the store a `Limiter` runs on, from a URL, a synchronous client object, or a store itself."""
    if isinstance(target, Store) and hasattr(target, "cluster"):
        return target
    return cast(Store, adapter(target).open_sync(target, deadline))


def open_async_store(target: object, deadline: float) -> AsyncStore:
    """Make the store an `AsyncLimiter` runs on, from a URL, an asyncio client object, or a store itself."""
    if isinstance(target, AsyncStore) and hasattr(target, "cluster"):
        return target
    return cast(AsyncStore, adapter(target).open_async(target, deadline))


def adapter(target: object) -> ModuleType:
    """The module that makes stores of this URL or client."""
    if isinstance(target, str):
        scheme = target.partition("://")[0]
        if scheme not in _SCHEMES:
            known = ", ".join(f"{name}://" for name in _SCHEMES)
            # What is no scheme is not named: it may hold a password.
            named = f" {scheme!r}" if re.fullmatch(r"[a-z][a-z0-9+]{,30}", scheme) else ""
            raise UsageError(f"unknown store URL scheme{named}: use one of {known}")
        library = _SCHEMES[scheme]
    else:
        libraries = {cls.__module__.partition(".")[0] for cls in type(target).__mro__}
        found = [adapter for name, adapter in _LIBRARIES.items() if name in libraries]
        if not found:
            raise UsageError(f"a limiter needs a store URL or a client object, not {type(target).__name__}")
        library = found[0]
    try:
        return import_module(f"pyslot.adapters.{library}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pyslot"):
            raise
        raise UsageError(
            f"the {library} store needs the package {error.name!r}: pip install 'pyslot-limits[{library}]'"
        ) from error
