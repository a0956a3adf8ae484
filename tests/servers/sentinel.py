"""A master, its replica, and three sentinels that watch them and fail over by themselves.

with Sentinels(binary("valkey-9.1")) as sentinels: ...      # sentinels.address, .master, .replica; .SERVICE
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.servers.process import Server


class Sentinel(Server):
    """One sentinel: a server that is told everything by its file, and writes to it."""

    def __init__(self, program: Path, *watch: str) -> None:
        super().__init__(program)
        self._watch = watch

    def start(self) -> None:
        self._dir = Path(tempfile.mkdtemp(prefix="pyslot-sentinel-"))
        config = self._dir / "sentinel.conf"
        lines = [f"port {self.port}", f"bind {self.host}", f"dir {self._dir}", f"logfile {self._dir / 'log'}"]
        config.write_text("\n".join([*lines, *self._watch, ""]), "utf-8")
        command = [str(self.program), str(config), "--sentinel"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.wait(lambda: self.command("PING") == "PONG")


class Sentinels:
    """Ready after a second or two: when each sentinel knows the replica and the other two."""

    SERVICE = "limits"

    def __init__(self, program: Path) -> None:
        self.master = Server(program)
        self.replica = Server(program, "--replicaof", self.master.host, str(self.master.port))
        watch = (
            f"sentinel monitor {self.SERVICE} {self.master.host} {self.master.port} 2",
            f"sentinel down-after-milliseconds {self.SERVICE} 500",
            f"sentinel failover-timeout {self.SERVICE} 3000",
        )
        self.sentinels = [Sentinel(program, *watch) for _ in range(3)]

    @property
    def address(self) -> str:
        """What stands in a URL between `://` and the service."""
        return ",".join(sentinel.address for sentinel in self.sentinels)

    def current(self) -> int:
        """The port of the master, as the sentinels see it."""
        return int(self.sentinels[0].command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.SERVICE)[1])

    def _knows_all(self, sentinel: Sentinel) -> bool:
        flat = sentinel.command("SENTINEL", "MASTER", self.SERVICE)
        known = dict(zip(flat[::2], flat[1::2], strict=True))
        return (known["num-slaves"], known["num-other-sentinels"], known["flags"]) == ("1", "2", "master")

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for server in (self.master, self.replica):
                stack.enter_context(server)
            self.replica.wait(lambda: "master_link_status:up" in self.replica.command("INFO", "replication"))
            for sentinel in self.sentinels:
                stack.enter_context(sentinel)
            for sentinel in self.sentinels:
                sentinel.wait(lambda s=sentinel: self._knows_all(s))  # type: ignore[misc]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()
