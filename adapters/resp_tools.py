"""The servers behind a URL one by one, for tools that ask them about themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from time import monotonic
from typing import Any, NamedTuple, cast

from pyslot.adapters.base import adapter, words
from pyslot.adapters.embedded import Server
from pyslot.adapters.resp import Client, LazyCluster
from pyslot.adapters.resp_bounds import clock
from pyslot.adapters.resp_clients import Library, make_client
from pyslot.adapters.resp_errors import ErrorTable, Verdict
from pyslot.errors import StoreError, StoreUnavailable, UsageError
from pyslot.loader import Call

_DENIED = ("NOPERM", "no permissions", "ACL failure", "can't run this command", "can't access at least one of the keys")


class Node:
    """One server process. Each answer comes within `patience` seconds, or not at all."""

    def __init__(self, name: str, client: Client, table: ErrorTable, patience: float, *, primary: bool = True) -> None:
        self.name = name
        self.primary = primary
        """Whether a cluster's client takes it for one that accepts writes."""
        self._client = client
        self._table = table
        self._patience = patience

    def ask(self, method: str, *args: object, **options: object) -> Any:  # noqa: ANN401 - depends on the command
        """Call a method of the client, such as "info". Raises `StoreError` or `StoreUnavailable`."""
        with self._mapped():
            return getattr(self._client, method)(*args, **options)

    def run_many(self, calls: Sequence[Call]) -> list[Sequence[int] | StoreError]:
        """Run script calls in one round trip; where one fails its error is in the place of its reply."""
        replies = self._send("EVALSHA", calls)
        missing = [at for at, reply in enumerate(replies) if self._judge(reply) is Verdict.NOSCRIPT]
        # The first EVAL makes the server know the script; to send its text once for each script is enough.
        for at in {calls[at].script.name: at for at in reversed(missing)}.values():
            replies[at] = self._send("EVAL", [calls[at]])[0]
        again = [at for at in missing if self._judge(replies[at]) is Verdict.NOSCRIPT]
        for at, reply in zip(again, self._send("EVALSHA", [calls[at] for at in again]), strict=True):
            replies[at] = reply
        return [StoreError(str(reply)) if isinstance(reply, Exception) else reply for reply in replies]

    def _send(self, command: str, calls: Sequence[Call]) -> list[Any]:
        if not calls:
            return []
        with self._mapped():
            pipeline = self._client.pipeline(transaction=False)
            for call in calls:
                what = call.script.sha if command == "EVALSHA" else call.script.text
                pipeline.execute_command(*words(command, what, call))
            return cast(list[Any], pipeline.execute(raise_on_error=False))

    def _judge(self, reply: object) -> Verdict | None:
        return self._table.judge(reply) if isinstance(reply, Exception) else None

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        clock.end = monotonic() + self._patience
        with mapped(self._table, self.name, self._patience):
            yield


class Servers(NamedTuple):
    """All that one URL leads to."""

    url: str
    """For a store on the same servers."""
    where: str
    """The address in the URL, and nothing that is secret."""
    cluster: bool
    nodes: Sequence[Node]

    @property
    def primaries(self) -> list[Node]:
        return [node for node in self.nodes if node.primary]


@contextmanager
def mapped(table: ErrorTable, where: str, patience: float) -> Iterator[None]:
    """A client's errors as ours."""
    try:
        yield
    except Exception as error:
        verdict = table.judge(error)
        if verdict is None:
            raise
        if verdict in {Verdict.DECLINED, Verdict.NOSCRIPT, Verdict.READONLY, Verdict.WRONGTYPE}:
            raise StoreError(f"{where}: {error}") from error
        raise StoreUnavailable(f"{where}: {str(error) or f'no answer within {patience:g} s'}") from error


@contextmanager
def servers(url: str, patience: float) -> Iterator[Servers]:
    """Connect to every server behind a URL, for the time of a block."""
    scheme = url.partition("://")[0]
    if scheme == "memory":
        raise UsageError("memory:// lives in one process only: there is no server to look at")
    if scheme == "embedded":
        server = Server(_library())
        try:
            with servers(server.url, patience) as found:
                yield found
        finally:
            server.stop()
        return
    if scheme.startswith("glide"):  # the same servers, for questions that glide has no words for
        url = url.replace("glide", _library(), 1)
    library: Library = adapter(url).LIBRARY
    made = make_client(library, library.blocking, url, patience)
    clock.end = monotonic() + patience
    try:
        with mapped(library.table, made.where, patience):
            client = made.client.connected() if isinstance(made.client, LazyCluster) else made.client
            if made.cluster:
                connection = getattr(client, f"get_{library.scheme}_connection")
                nodes = [
                    Node(
                        node.name,
                        connection(node),
                        library.table,
                        patience,
                        primary=node.server_type == "primary",
                    )
                    for node in sorted(client.get_nodes(), key=lambda node: (node.server_type, node.name))
                ]
            else:
                nodes = [Node(made.where, client, library.table, patience)]
                _greet(nodes[0])
        yield Servers(url, made.where, made.cluster, nodes)
    finally:
        for each in made.owned:
            each.close()


def denied(error: StoreError) -> bool:
    """Whether a user lacks a right; each server has words of its own, and more of them within scripts."""
    return any(words in str(error) for words in _DENIED)


def _greet(node: Node) -> None:
    try:
        node.ask("ping")
    except StoreError as error:
        if not denied(error):  # else it has answered, and a user may do well without PING
            raise


def _library() -> str:
    for name in ("valkey", "redis"):
        if find_spec(name):
            return name
    raise UsageError("this needs the package 'valkey': pip install 'pyslot-limits[valkey]'")
