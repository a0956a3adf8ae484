"""A stand-in for a model server: slow, and it counts how many requests it works on at once. Knows nothing of pyslot."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection


@dataclass
class Load:
    """What it has had to do since its first request."""

    served: int = 0
    now: int = 0
    """Requests it is working on."""
    peak: int = 0
    busy: float = 0.0
    """Request-seconds of work."""
    seconds: float = 0.0

    def change(self, by: int, elapsed: float) -> None:
        self.busy += self.now * elapsed
        self.seconds += elapsed
        self.now += by
        self.peak = max(self.peak, self.now)


class ModelServer:
    """Answers each line it is sent after `fastest` to `slowest` seconds, but "load" at once, with its figures."""

    def __init__(self, fastest: float, slowest: float) -> None:
        self._range = fastest, slowest
        self._random = random.Random(5)  # noqa: S311  # the same times in every run
        self._load = Load()
        self._at: float | None = None

    def _change(self, by: int) -> None:
        now = time.monotonic()
        if by or self._at is not None:  # its time begins with the first request
            self._load.change(by, now - (self._at or now))
            self._at = now

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if line == b"load\n":
                self._change(0)
                answer = json.dumps(asdict(self._load)).encode()
            else:
                self._change(+1)
                await asyncio.sleep(self._random.uniform(*self._range))
                self._change(-1)
                self._load.served += 1
                answer = b"done"
            writer.write(answer + b"\n")
        writer.close()

    async def run(self, ready: Connection) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()


def _main(fastest: float, slowest: float, ready: Connection) -> None:
    asyncio.run(ModelServer(fastest, slowest).run(ready))


@contextmanager
def model_server(fastest: float, slowest: float) -> Iterator[int]:
    """Run one in a process of its own for the time of a block, which gets its port."""
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_main, args=(fastest, slowest, theirs), daemon=True)
    process.start()
    theirs.close()  # so that `recv` fails where the process did
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


@asynccontextmanager
async def connect(port: int) -> AsyncIterator[Callable[[str], Awaitable[bytes]]]:
    """A connection to a model server: a function that sends a line and waits for the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask(line: str) -> bytes:
        writer.write(f"{line}\n".encode())
        return await reader.readline()

    try:
        yield ask
    finally:
        writer.close()


async def _load(port: int) -> Load:
    async with connect(port) as ask:
        return Load(**json.loads(await ask("load")))


def load_of(port: int) -> Load:
    """Ask a model server for its figures."""
    return asyncio.run(_load(port))
