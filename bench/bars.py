"""The bars: what must hold on Valkey 9.1, as ratios within one run. `python -m bench.bars` fails if one falls short."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import redis
import valkey

from bench import beside
from bench.bar import Bar, Run, at_least, at_most
from bench.bars_many import under_load
from bench.bars_one import memory_store, pair, per_window
from bench.bars_server import expired, growth, memory, on_server
from tests.servers.binaries import binary
from tests.servers.process import Server


def bars(rounds: int, seconds: float) -> Iterator[Bar]:
    with Server(binary("valkey-9.1")) as server, beside.worker(server.port) as litellm:
        for name, library, most in (("redis-py", redis, 1.15), ("valkey-py", valkey, 1.2)):
            yield at_most(f"sync pair against the scripts bare, {name}", pair(library, server, rounds), most)
        yield from asyncio.run(under_load(Run(server, litellm, rounds, seconds)))
        yield from on_server(server, litellm, rounds)
        yield from per_window(server, rounds)
        yield at_most("time on the server at 100,000 live slots against 10, Valkey 9.1", growth(server, rounds), 1.3)
        yield expired(server)
        yield memory(server, 110, "Valkey 9.1")
    with Server(binary("redis-7.0")) as server:
        yield at_most("time on the server at 100,000 live slots against 10, Redis 7.0", growth(server, rounds), 2.0)
        yield memory(server, 160, "Redis 7.0")
    yield at_least("memory store against the embedded server, sync pairs", memory_store(rounds), 8)


def main() -> None:
    warnings.simplefilter("ignore")  # these clients may wait for long; nothing here goes silent
    gc.freeze()
    quick = "--quick" in sys.argv
    missed = 0
    found = []
    for bar in bars(rounds=3 if quick else 9, seconds=0.4 if quick else 1.0):
        found.append(bar._asdict())
        missed += not bar.reached
        floor = f"; without the library {bar.floor}" if bar.floor else ""
        said = f"{bar.name}: {bar.figure}, wanted {bar.wanted}{floor}"
        print(f"{'reached' if bar.reached else 'MISSED ':8} {said}", flush=True)
    results = Path("bench/results")
    results.mkdir(exist_ok=True)
    (results / "bars.json").write_text(json.dumps(found, indent=2) + "\n")
    sys.exit(f"{missed} bars missed" if missed else 0)


if __name__ == "__main__":
    main()
