"""A cluster of three embedded servers on the loopback interface."""

from __future__ import annotations

import contextlib
import random
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from valkey import Valkey
from valkey.exceptions import ConnectionError as NoConnection

from pyslot.adapters.embedded import launch, stop
from pyslot.errors import StoreError
from pyslot.keys import HASH_SLOTS

NODES = 3
HOST = "127.0.0.1"
_START = 20.0
"""Seconds for the nodes to find each other. It takes some two."""


@contextlib.contextmanager
def cluster() -> Iterator[str]:
    """Run one for the time of a block, which gets its URL."""
    with contextlib.ExitStack() as stack:
        ports = _free_ports(NODES)
        for port in ports:
            options = (
                "--port",
                f"{port}",
                "--bind",
                HOST,
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                "2000",
            )
            stack.callback(stop, launch(Path(tempfile.mkdtemp(prefix="pyslot-")), *options))
        nodes = [stack.enter_context(Valkey(HOST, port, decode_responses=True)) for port in ports]
        _join(nodes, ports)
        yield f"valkey+cluster://{HOST}:{ports[0]}"


def _join(nodes: list[Any], ports: list[int]) -> None:
    for node in nodes:
        _until(node.ping)
    for i, node in enumerate(nodes):
        node.execute_command("CLUSTER SET-CONFIG-EPOCH", i + 1)
        node.execute_command("CLUSTER ADDSLOTSRANGE", HASH_SLOTS * i // NODES, HASH_SLOTS * (i + 1) // NODES - 1)
        node.execute_command("CLUSTER MEET", HOST, ports[0])
    _until(lambda: all(node.cluster("INFO")["cluster_state"] == "ok" for node in nodes))
    _until(lambda: all(len(node.cluster("SLOTS")) == NODES for node in nodes))


def _until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + _START
    while time.monotonic() < end:
        with contextlib.suppress(NoConnection):  # it does not listen yet
            if ready():
                return
        time.sleep(0.02)
    raise StoreError(f"the {NODES} servers of the demo did not become a cluster within {_START:g} s")


def _free_ports(wanted: int) -> list[int]:
    """Ports that are free, as are their cluster buses 10,000 above; both below what outgoing connections take."""
    found: list[int] = []
    for port in random.sample(range(20_000, 22_768), 1_000):
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as bus:
            one.bind((HOST, port))
            bus.bind((HOST, port + 10_000))
            found.append(port)
        if len(found) == wanted:
            return found
    raise StoreError("there are no free ports for a cluster between 20,000 and 22,768")
