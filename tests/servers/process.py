"""Start and stop real servers and clusters, on the loopback interface only. Linux.

with Server(binary("valkey-9.1")) as server: ...        # server.port, server.url
with Cluster(binary("redis-8.2"), replicas=1) as cluster: ...   # cluster.nodes: masters first, then their replicas
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Self

_tries = itertools.count(os.getpid() * 37)


def _free_port() -> int:
    """Find a port that is free, as is the default cluster bus port, 10,000 above.

    Both lie below the ephemeral range (32768 up): no outgoing connection takes them between this look and the server's
    own bind. Processes start their search at different places, so that parallel test runs rarely meet.
    """
    while True:
        port = 20_000 + next(_tries) % 2_768
        with contextlib.suppress(OSError), socket.socket() as a, socket.socket() as b:
            a.bind(("127.0.0.1", port))
            b.bind(("127.0.0.1", port + 10_000))
            return port


class Server:
    """One server process. It can be stopped and started again, empty, at the same port."""

    host = "127.0.0.1"

    def __init__(self, program: Path, *options: str) -> None:
        """`options` are as on the command line: "--maxmemory", "5mb"."""
        self.program = program
        self.options = options
        self.port = _free_port()
        self.node_id = ""

    def __repr__(self) -> str:
        return f"<Server {self.program.name} at {self.address}>"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """For redis-py; for another client put its own scheme before `address`."""
        return f"redis://{self.address}"

    def start(self) -> None:
        self._dir = Path(tempfile.mkdtemp(prefix="pyslot-server-"))
        # Of a replica, the master's default is to wait 5 s for more of them before it sends its data.
        fixed = ["--bind", self.host, "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]
        # Redis 7.0 to 8.2 and Valkey 8.1 leave a replica out of CLUSTER SLOTS until its offset is not 0, which on an
        # idle cluster is after the master's first ping: 10 s by default.
        fixed += ["--repl-ping-replica-period", "1", "--dir", str(self._dir), "--logfile", str(self._dir / "log")]
        args = [str(self.program), "--port", str(self.port), *fixed, *self.options]
        self.process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.wait(lambda: self.command("PING") == "PONG")

    def stop(self) -> None:
        # On SIGTERM a master of 7.0 or later may wait shutdown-timeout (10 s) for a replica that lags.
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self._dir, ignore_errors=True)

    def pause(self) -> None:
        """Fall silent: the kernel still accepts connections, nothing answers."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def fresh(self) -> Self:
        """Forget all data and scripts."""
        self.command("FLUSHALL")
        self.command("SCRIPT", "FLUSH")
        return self

    def command(self, *args: str | bytes | float, timeout: float = 5) -> Any:  # noqa: ANN401 - depends on args
        """Run one command over a connection of its own (RESP2); strings are decoded, an error raises RuntimeError."""
        words = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
        sent = b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)])
        with socket.create_connection((self.host, self.port), timeout) as link, link.makefile("rb") as replies:
            link.sendall(sent)
            return _read(replies)

    def wait(self, ready: Callable[[], bool], timeout: float = 20) -> None:
        end = time.monotonic() + timeout
        while self.process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError):  # not listening yet
                if ready():
                    return
            time.sleep(0.02)
        log = self._dir / "log"
        text = log.read_text(errors="replace")[-3_000:] if log.exists() else "(it has no log)"
        self.stop()
        raise RuntimeError(f"{self!r} did not get ready. Its log ends:\n{text}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


class Cluster:
    """Masters, and for each so many replicas. Ready after 2 s at least: share one among tests."""

    def __init__(self, program: Path, *options: str, masters: int = 3, replicas: int = 0) -> None:
        cluster = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-announce-ip", Server.host)
        count = masters * (1 + replicas)
        self.nodes = [Server(program, *cluster, *options) for _ in range(count)]
        self.masters = self.nodes[:masters]
        self.replicas = replicas

    def __repr__(self) -> str:
        return f"<Cluster of {len(self.nodes)} {self.nodes[0].program.name} at {self.address}>"

    @property
    def address(self) -> str:
        """Where clients may start: they find the rest by themselves."""
        return self.masters[0].address

    @property
    def url(self) -> str:
        return f"redis+cluster://{self.address}"

    def start(self) -> None:
        with contextlib.ExitStack() as stack:
            for node in self.nodes:
                stack.enter_context(node)
            self._join()
            stack.pop_all()

    def _join(self) -> None:
        count = len(self.masters)
        for i, node in enumerate(self.nodes):
            node.node_id = node.command("CLUSTER", "MYID")
            node.command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)  # distinct, so that there is no collision to settle
            if i < count:  # slot by slot: ADDSLOTSRANGE needs 7.0
                node.command("CLUSTER", "ADDSLOTS", *range(16_384 * i // count, 16_384 * (i + 1) // count))
            if i:
                node.command("CLUSTER", "MEET", node.host, self.nodes[0].port)
        for master, replica in zip(itertools.cycle(self.masters), self.nodes[count:], strict=False):
            replica.wait(lambda m=master, r=replica: f"{m.node_id} " in r.command("CLUSTER", "NODES"))  # type: ignore[misc]
            replica.command("CLUSTER", "REPLICATE", master.node_id)
        for node in self.nodes:
            node.wait(lambda n=node: self._ready(n))  # type: ignore[misc]

    def _ready(self, node: Server) -> bool:
        info = node.command("CLUSTER", "INFO")
        wanted = ("cluster_state:ok", "cluster_slots_ok:16384", f"cluster_known_nodes:{len(self.nodes)}")
        role = node.command("INFO", "replication")
        return (
            all(f"{line}\r\n" in info for line in wanted)
            and "handshake" not in node.command("CLUSTER", "NODES")
            and ("role:master" in role or "master_link_status:up" in role)
            and all(len(row) == 3 + self.replicas for row in node.command("CLUSTER", "SLOTS"))
        )

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def fresh(self) -> Self:
        for node in self.masters:
            node.fresh()
        return self

    def __iter__(self) -> Iterator[Server]:
        return iter(self.nodes)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def _read(replies: IO[bytes]) -> Any:  # noqa: ANN401 - depends on the command
    line = replies.readline()
    kind, rest = line[:1], line[1:-2]
    match kind:
        case b"+":
            return rest.decode()
        case b":":
            return int(rest)
        case b"$":
            size = int(rest)
            return None if size < 0 else replies.read(size + 2)[:-2].decode("utf-8", "surrogateescape")
        case b"*":
            return [_read(replies) for _ in range(int(rest))]
        case b"-":
            raise RuntimeError(rest.decode())
    raise ConnectionError("the server closed the connection")  # an OSError: `wait` tries again
