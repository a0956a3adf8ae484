"""What a granted request holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

from pyslot.calls import Parts
from pyslot.errors import InvalidLimit, StoreUnavailable, UsageError
from pyslot.ids import decode_id
from pyslot.kinds import Charge, Window

if TYPE_CHECKING:
    from pyslot.aio import AsyncLimiter
    from pyslot.decision import Outcome
    from pyslot.limiter import Limiter

log = logging.getLogger("pyslot")
T = TypeVar("T")

OnError = Literal["keep", "refund"]


class BasePermit:
    """One id, present in every gauge and window it was granted. `settle` and `refund` only record; `finish` sends."""

    __slots__ = ("__weakref__", "_limiter", "_open", "figures", "lost", "on_error", "parts", "started", "wire_id")

    lost: bool
    """True once a slot of it was found gone: its lease ended before it was renewed, or the server lost its data."""

    def __init__(self, limiter: Any, wire_id: bytes, parts: Parts) -> None:  # noqa: ANN401  # Limiter or AsyncLimiter
        self._limiter = limiter
        self.wire_id = wire_id
        self.parts = parts
        self.lost = False
        self.on_error: OnError = "keep"
        self.figures: dict[bytes, int] = {}
        """Units really used, by the window's key."""
        self.started = 0.0
        """When it began, by the limiter's monotonic clock."""
        self._open = True

    @property
    def id(self) -> str:
        """The permit's name on the server."""
        return decode_id(self.wire_id)

    def settle(self, *charges: Charge) -> None:
        """Replace what windows were charged by the real figures, when the permit finishes. The last figure counts."""
        for charge in charges:
            if type(charge) is not Charge:
                raise InvalidLimit(f"settle takes window.cost(units), not {charge!r}")
            self._record(charge.window, charge.units)

    def refund(self, *windows: Window) -> None:
        """Take charges back when the permit finishes: those of the given windows, or of all."""
        for window in windows or [part.limit for part in self.parts if isinstance(part.limit, Window)]:
            if type(window) is not Window:
                raise InvalidLimit(f"refund takes windows, not {window!r}")
            self._record(window, 0)

    def _failed(self) -> None:
        """The block has raised: what is known to be used stands, what was only estimated goes by `on_error`."""
        if self.on_error == "refund" and self._open:
            for part in self.parts:
                if isinstance(part.limit, Window):
                    self.figures.setdefault(part.wire.key, 0)

    def _record(self, window: Window, units: int) -> None:
        if not self._open:
            raise UsageError(f"permit {self.id} has finished: settle and refund come before finish")
        # By its key, not by identity: a configuration that was loaded anew settles just as well.
        key = window.wire(self._limiter._flows.naming).key
        for part in self.parts:
            if part.wire.key == key:
                self.figures[key] = units
                return
        raise InvalidLimit(f"permit {self.id} holds no charge in {window!r}")

    @property
    def is_open(self) -> bool:
        """False once it has finished or was detached."""
        return self._open

    def close(self) -> bool:
        """Mark it finished; False where it was already."""
        was_open, self._open = self._open, False
        return was_open

    def __repr__(self) -> str:
        state = ("open" if self._open else "finished") + (", lost" if self.lost else "")
        return f"<{type(self).__name__} {self.id} {state}: {', '.join(map(str, self.parts))}>"


class Permit(BasePermit):
    """A permit of `Limiter`. As a context manager it finishes when the block ends."""

    __slots__ = ()

    _limiter: Limiter

    def finish(self) -> Outcome:
        """Give its slots back and settle its charges, once; a later call changes nothing and says `late`.

        Raises `StoreUnavailable` where the server can't be reached; then it is sent again in the background.
        """
        return self._limiter._finish(self)

    def detach(self) -> bytes:
        """Stop renewing and finishing it here; `adopt` with the token takes it over, in this process or another."""
        return self._limiter._flows.detach(self)

    def wrap(self, stream: Iterable[T]) -> PermitStream[T]:
        """The stream, finishing the permit when it ends, fails or is closed."""
        return PermitStream(self, stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._failed()
        try:
            self._limiter._finish(self)
        except Exception as trouble:  # noqa: BLE001  # the work is done, and its result or its own exception matters more
            not_finished(self, trouble)


class AsyncPermit(BasePermit):
    """A permit of `AsyncLimiter`. As an asynchronous context manager it finishes when the block ends."""

    __slots__ = ()

    _limiter: AsyncLimiter

    async def finish(self) -> Outcome:
        """Give its slots back and settle its charges, once; a later call changes nothing and says `late`.

        Raises `StoreUnavailable` where the server can't be reached; then it is sent again in the background.
        """
        return await self._limiter._finish(self)

    def detach(self) -> bytes:
        """Stop renewing and finishing it here; `adopt` with the token takes it over, in this process or another."""
        return self._limiter._flows.detach(self)

    def wrap(self, stream: AsyncIterable[T]) -> AsyncPermitStream[T]:
        """The stream, finishing the permit when it ends, fails or is closed."""
        return AsyncPermitStream(self, stream)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._failed()
            if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
                self._limiter._flows.finish_later(self)
                return
        try:
            await self._limiter._finish(self)
        except Exception as trouble:  # noqa: BLE001  # the work is done, and its result or its own exception matters more
            not_finished(self, trouble)


def not_finished(permit: BasePermit, trouble: Exception) -> None:
    """Log what kept a block from ending its permit."""
    if permit._limiter._flows.foreign(permit):
        pass  # the block was entered in the process that forked this one, and ends there
    elif isinstance(trouble, StoreUnavailable):
        log.warning("the end of permit %s is sent later: %s", permit.id, trouble)
    elif isinstance(trouble, UsageError):
        log.warning("the end of permit %s can't be sent, its lease will end it: %s", permit.id, trouble)
    else:
        log.error("the end of permit %s could not be sent", permit.id, exc_info=trouble)


class PermitStream(Iterator[T], Generic[T]):
    """An iterator that finishes its permit with it. Also a context manager, for streams that may be left early."""

    def __init__(self, permit: Permit, stream: Iterable[T]) -> None:
        self._permit = permit
        self._stream = stream
        self._items = iter(stream)

    def __next__(self) -> T:
        try:
            return next(self._items)
        except StopIteration:
            self._permit.__exit__(None, None, None)
            raise
        except BaseException as error:
            self._permit.__exit__(type(error), error, error.__traceback__)
            raise

    def close(self) -> None:
        """Leave the stream: close what it was made from, if that can be closed, and finish the permit."""
        try:
            if (close := getattr(self._stream, "close", None)) is not None:
                close()
        except BaseException as error:
            self._permit.__exit__(type(error), error, error.__traceback__)
            raise
        self._permit.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncPermitStream(AsyncIterator[T], Generic[T]):
    """An asynchronous iterator that finishes its permit with it. Also an asynchronous context manager."""

    def __init__(self, permit: AsyncPermit, stream: AsyncIterable[T]) -> None:
        self._permit = permit
        self._stream = stream
        self._items = aiter(stream)

    async def __anext__(self) -> T:
        try:
            return await anext(self._items)
        except StopAsyncIteration:
            await self._permit.__aexit__(None, None, None)
            raise
        except BaseException as error:
            await self._permit.__aexit__(type(error), error, error.__traceback__)
            raise

    async def aclose(self) -> None:
        """Leave the stream: close what it was made from, if that can be closed, and finish the permit."""
        try:
            if (aclose := getattr(self._stream, "aclose", None)) is not None:
                await aclose()
        except BaseException as error:
            await self._permit.__aexit__(type(error), error, error.__traceback__)
            raise
        await self._permit.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()
