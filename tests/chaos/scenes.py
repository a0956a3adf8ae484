"""The scenes: which server, and what befalls it."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyslot.keys import Naming, hash_slot
from tests.chaos.books import Account, Findings, account, bounds, check_slots, tally
from tests.chaos.worker import DEADLINE, LEASE, LIMIT, SLOTS, window
from tests.servers.binaries import binary
from tests.servers.process import Cluster, Server

WORKERS = (("sync", "valkey"), ("async", "valkey"), ("sync", "redis"), ("async", "redis"))
SETTLING = DEADLINE + 5 + 3
"""Seconds in which clean-up is over."""
NAMING = Naming()


class Stage(NamedTuple):
    """What a scene gives its workers and its checker."""

    url: Callable[[str], str]
    """Library -> where workers connect."""
    nodes: list[Server]
    """Where the truth is, once all is over."""
    faults: list[tuple[str, Callable[[], None]]]
    losses: list[float]
    """When the server lost state, filled in as it happens."""
    counts: Callable[[], dict[str, int]]
    keeps: bool
    """True where the server keeps its data through everything."""


class Crew:
    """The workers. One that was killed is replaced."""

    def __init__(self, folder: Path, url: Callable[[str], str]) -> None:
        self._folder = folder
        self._url = url
        self.killed: dict[str, float] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._count = 0
        self._kinds: dict[str, tuple[str, str]] = {}
        for kind in WORKERS:
            self.start(kind)

    def start(self, kind: tuple[str, str]) -> None:
        name = f"{self._count}"
        self._count += 1
        colour, library = kind
        args = [colour, self._url(library), str(self._folder / name)]
        self.running[name] = subprocess.Popen([sys.executable, "-m", "tests.chaos.worker", *args])
        self._kinds[name] = kind

    def kill_one(self) -> None:
        name = random.choice(list(self.running))
        process = self.running.pop(name)
        self.killed[name] = time.monotonic()
        process.kill()
        process.wait()
        self.start(self._kinds[name])

    def stop(self) -> None:
        for name, process in self.running.items():
            while not (self._folder / name).exists() and process.poll() is None:
                time.sleep(0.01)  # it has only just begun, and would not hear
            process.send_signal(signal.SIGTERM)
        for name, process in self.running.items():
            if code := process.wait(60):
                raise RuntimeError(f"worker {name} failed: {code}")

    def accounts(self) -> dict[str, Account]:
        return {
            name: account(self._folder / name, self.killed.get(name))
            for name in self._kinds
            if (self._folder / name).exists()
        }


def play(stage: Stage, seconds: float) -> Findings:
    """Let workers work for so long while things befall them, then check their books."""
    found = Findings()
    with tempfile.TemporaryDirectory(prefix="pyslot-chaos-") as folder:
        crew = Crew(Path(folder), stage.url)
        try:
            end = time.monotonic() + seconds
            faults = [*stage.faults, ("workers killed", crew.kill_one)]
            turn = 0
            while time.monotonic() < end:
                time.sleep(random.uniform(0.5, 1.5))
                name, act = faults[turn % len(faults)]
                turn += 1
                act()
                found.faults[name] += 1
            time.sleep(1)  # whatever was begun is over
            crew.stop()
        finally:
            for process in crew.running.values():
                process.kill()
                process.wait()
        for name, count in stage.counts().items():
            found.faults[name] += count
        time.sleep(LEASE + 1)
        found.slots_left = sum(_slots_left(stage.nodes, slots.wire(NAMING).key) for slots in SLOTS)
        accounts = crew.accounts()
        tally(list(accounts.values()), found)
        check_slots(list(accounts.values()), stage.losses, LIMIT, found)
        if stage.keeps:
            for name, book in accounts.items():
                least, most = bounds(book, SETTLING)
                units = _units(stage.nodes, window(name).wire(NAMING).key)
                wrong = max(0, least - units, units - most)
                found.charge_errors += wrong
                if wrong:
                    print(f"worker {name} ({'killed' if book.killed else 'closed'}): {units} not in {least}..{most}")
    return found


def _ask(nodes: list[Server], *args: str | bytes) -> object:
    for node in nodes:
        with contextlib.suppress(RuntimeError, OSError):  # another node's, or dead
            if "role:master" in node.command("INFO", "replication"):
                return node.command(*args)
    raise RuntimeError(f"nobody answers {args!r}")


def _slots_left(nodes: list[Server], key: bytes) -> int:
    now = int(time.time() * 1000)
    return int(str(_ask(nodes, "ZCOUNT", key, f"({now}", "+inf")))


def _units(nodes: list[Server], key: bytes) -> int:
    return int(str(_ask(nodes, "HGET", key, "n") or 0))


def _restart(server: Server) -> None:
    server.process.kill()
    server.process.wait()
    time.sleep(random.uniform(0, 0.5))
    server.process = subprocess.Popen(server.process.args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    server.wait(lambda: _ready(server))


def _ready(server: Server) -> bool:
    try:
        return bool(server.command("PING") == "PONG")
    except RuntimeError:  # it reads its data
        return False


def _pause(server: Server) -> None:
    server.pause()
    time.sleep(random.uniform(0.2, LEASE / 3))
    server.resume()


def _flush(*servers: Server) -> None:
    for server in servers:
        with contextlib.suppress(OSError, RuntimeError):
            server.command("SCRIPT", "FLUSH")


@contextmanager
def durable(name: str = "valkey-9.1") -> Iterator[Stage]:
    """A server that writes everything down before it answers: killed, paused, flushed."""
    with Server(binary(name), "--appendonly", "yes", "--appendfsync", "always") as server:
        faults = [
            ("server killed", lambda: _restart(server)),
            ("scripts flushed", lambda: _flush(server)),
            ("server paused", lambda: _pause(server)),
        ]
        yield Stage(lambda library: f"{library}://{server.address}", [server], faults, [], dict, keeps=True)


@contextmanager
def forgetful(name: str = "redis-8.2") -> Iterator[Stage]:
    """A server without persistence, killed: it comes back empty."""
    losses: list[float] = []
    with Server(binary(name)) as server:

        def restart() -> None:
            server.process.kill()
            server.process.wait()
            _restart(server)
            losses.append(time.monotonic())

        faults = [("server killed", restart), ("scripts flushed", lambda: _flush(server))]
        yield Stage(lambda library: f"{library}://{server.address}", [server], faults, losses, dict, keeps=False)


@contextmanager
def network(name: str = "valkey-9.1") -> Iterator[Stage]:
    """A proxy that drops replies, cuts connections, delays and splits packets."""
    with Server(binary(name)) as server:
        command = [sys.executable, "-m", "tests.chaos.network", str(server.port), str(random.randrange(10**6))]
        proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert proxy.stdout
        port = int(proxy.stdout.readline())

        def counts() -> dict[str, int]:
            proxy.send_signal(signal.SIGTERM)
            return dict(json.loads(proxy.communicate()[0]))

        try:
            faults = [("scripts flushed", lambda: _flush(server))]
            yield Stage(lambda library: f"{library}://127.0.0.1:{port}", [server], faults, [], counts, keeps=True)
        finally:
            proxy.kill()
            proxy.wait()


@contextmanager
def cluster(name: str = "valkey-9.1") -> Iterator[Stage]:
    """Three masters with a replica each: masters die and are replaced, hash slots move."""
    losses: list[float] = []
    with Cluster(binary(name), replicas=1) as nodes:
        everyone = nodes.nodes

        def masters() -> list[Server]:
            return [node for node in everyone if _role(node) == "master"]

        def kill() -> None:
            dead = random.choice(masters())
            before = time.monotonic()
            dead.process.kill()
            dead.process.wait()
            losses.append(before)
            others = [node for node in everyone if node is not dead]
            others[0].wait(lambda: [_role(node) for node in others].count("master") == 3, 30)
            others[0].wait(lambda: all("cluster_state:ok" in n.command("CLUSTER", "INFO") for n in others), 30)
            losses.append(time.monotonic())  # what was granted before, by whomever, may be unknown to the new master
            _rejoin(dead, others)

        def move() -> None:
            with contextlib.suppress(RuntimeError, OSError):  # a fail-over is on its way
                _move(random.choice(SLOTS).wire(NAMING).key, masters())

        faults = [("hash slots moved", move), ("scripts flushed", lambda: _flush(*everyone)), ("masters killed", kill)]
        faults += [("hash slots moved", move)]
        url = everyone[1].address
        yield Stage(lambda library: f"{library}+cluster://{url}", everyone, faults, losses, dict, keeps=False)


def _role(node: Server) -> str:
    with contextlib.suppress(OSError, RuntimeError):
        return "master" if "role:master" in node.command("INFO", "replication") else "replica"
    return "dead"


def _rejoin(dead: Server, others: list[Server]) -> None:
    """Start a node again, empty, as the replica of the master that has none."""
    old = dead.node_id
    dead.start()
    dead.node_id = dead.command("CLUSTER", "MYID")
    for node in others:
        node.wait(lambda n=node: _forgets(n, old))  # type: ignore[misc]
    dead.command("CLUSTER", "MEET", others[0].host, others[0].port)
    lonely = next(
        node
        for node in others
        if _role(node) == "master" and "connected_slaves:0" in node.command("INFO", "replication")
    )
    dead.wait(lambda: f"{lonely.node_id} " in dead.command("CLUSTER", "NODES"))
    dead.command("CLUSTER", "REPLICATE", lonely.node_id)
    dead.wait(lambda: "master_link_status:up" in dead.command("INFO", "replication"))
    time.sleep(1)


def _forgets(node: Server, old: str) -> bool:
    """False while the old one is still its master."""
    if old not in node.command("CLUSTER", "NODES"):
        return True
    with contextlib.suppress(RuntimeError):
        node.command("CLUSTER", "FORGET", old)
        return True
    return False


def _move(key: bytes, masters: list[Server]) -> None:
    slot = hash_slot(key)
    owner = next(node for node in masters if _owns(node, key))
    target = random.choice([node for node in masters if node is not owner])
    target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", owner.node_id)
    owner.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.node_id)
    while keys := owner.command("CLUSTER", "GETKEYSINSLOT", slot, 10):
        owner.command("MIGRATE", target.host, target.port, "", 0, 1000, "KEYS", *keys)
    for node in (target, owner, *(node for node in masters if node not in (target, owner))):
        node.command("CLUSTER", "SETSLOT", slot, "NODE", target.node_id)


def _owns(node: Server, key: bytes) -> bool:
    try:
        node.command("EXISTS", key)
    except RuntimeError:
        return False
    return True


SCENES = {"durable": durable, "forgetful": forgetful, "network": network, "cluster": cluster}
