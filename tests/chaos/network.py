"""A relay that does to connections what bad networks do, at random. A process of its own, for it must be quick.

python -m tests.chaos.network <port of the server> <seed>      # prints the port it listens at; on SIGTERM, its counts
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from collections import Counter
from contextlib import suppress

DROP, CUT, DELAY, SPLIT = 0.0008, 0.0008, 0.003, 0.02
"""The odds for each packet: a reply lost with its connection, a request cut off, held back, sent in pieces."""
counts: Counter[str] = Counter()


async def _relay(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, other: asyncio.StreamWriter, request: bool
) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            luck = random.random()
            if luck < (CUT if request else DROP):
                counts["cut" if request else "dropped replies"] += 1
                break
            if random.random() < DELAY:
                counts["delays"] += 1
                await asyncio.sleep(random.uniform(0.005, 0.7))
            if random.random() < SPLIT and len(data) > 2:
                counts["splits"] += 1
                at = random.randrange(1, len(data))
                target.write(data[:at])
                await target.drain()
                await asyncio.sleep(random.uniform(0, 0.005))
                data = data[at:]
            target.write(data)
            await target.drain()
    for end in (target, other):
        with suppress(OSError):
            end.transport.abort()


async def main(port: int) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream, down = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(_relay(reader, down, writer, True), _relay(upstream, writer, down, False))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print(server.sockets[0].getsockname()[1], flush=True)
    await stop.wait()
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    random.seed(int(sys.argv[2]))
    asyncio.run(main(int(sys.argv[1])))
