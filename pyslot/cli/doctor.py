"""`pyslot doctor`: will limits hold on this server?"""

from __future__ import annotations

import json
import platform
import re
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256

import click
from rich.table import Table
from rich.text import Text

from pyslot.adapters.base import Store, open_store
from pyslot.adapters.resp_tools import Node, Servers, denied, servers
from pyslot.calls import SCRIPTS
from pyslot.cli import checks
from pyslot.cli.checks import Finding, Info, Level
from pyslot.cli.screen import console, json_option, own_version, patience_option, prefix_option, url_argument, waiting
from pyslot.cli.verify import verify
from pyslot.cli.watch import walk
from pyslot.errors import PyslotError, StoreError, StoreUnavailable
from pyslot.keys import Naming, parse
from pyslot.kinds import Slots
from pyslot.loader import Call

_STYLES = {Level.GOOD: "green", Level.WARN: "yellow", Level.BAD: "bold red"}
_CLUSTER = ("cluster|slots", "cluster|shards", "cluster|nodes", "command")
"""What a cluster's client asks for itself."""
_ROUNDS = 20
_LOOKED_AT = 200_000
"""Keys that are walked over in search of names: some two seconds."""


@click.command("doctor")
@url_argument
@prefix_option
@patience_option
@json_option
def command(url: str, prefix: str, patience: float, as_json: bool) -> int:
    """Check a server: will limits hold there, and what to do if not.

    Looks at INFO and at the clock, measures round trips, runs every script over keys of its own (gone afterwards) and
    walks over the names of keys.

    The exit status is 0 if all is good, 1 if there is a warning, 2 if something is bad or the server can't be reached.
    """
    Naming(prefix)
    findings = []
    try:
        with waiting("waiting for the server to answer"), servers(url, patience) as found:
            for finding in diagnose(found, prefix, patience):
                findings.append(finding)  # noqa: PERF402  # what was found before an error counts
    except (StoreError, StoreUnavailable) as error:
        findings.append(Finding(Level.BAD, "reach", str(error), _how_to_reach(str(error))))
    if as_json:
        rows = [
            {"level": each.level.name.lower(), "what": each.what, "said": each.said, "advice": each.advice}
            for each in findings
        ]
        click.echo(json.dumps(rows, indent=2))
    else:
        _show(findings)
    return max(finding.level for finding in findings)


def diagnose(found: Servers, prefix: str, patience: float) -> Iterator[Finding]:
    """All lines, in order."""
    yield Finding(Level.GOOD, "reach", f"{found.where} answers")
    yield Finding(Level.GOOD, "here", f"pyslot {own_version()} on Python {platform.python_version()}")
    infos: dict[str, Info] = {}
    for node in found.nodes:
        try:
            infos[node.name] = node.ask("info")
        except StoreError as error:
            yield Finding(Level.WARN, "figures", str(error), "ask as a user who may INFO: much can't be seen now")
    if infos:
        shape = checks.topology(infos, cluster=found.cluster)
        yield shape
        if shape.level is Level.BAD:
            return  # the rest would only say so again and again
        yield from _figures(infos, found)
    store = open_store(found.url, patience)
    try:
        yield from _rights(store, prefix, found)
        yield from _times(found, store, prefix)
    finally:
        store.close()
    yield from _guarded("names", lambda: _names(found, prefix))


def _figures(infos: Mapping[str, Info], found: Servers) -> Iterator[Finding]:
    primaries = {node.name: infos[node.name] for node in found.primaries if node.name in infos}
    yield from checks.versions(infos)
    yield from checks.per_node(primaries, checks.role)
    if found.cluster:
        yield from _guarded("cluster", lambda: iter([_cluster(found.nodes[0])]))
    yield from checks.per_node(infos, checks.eviction)
    yield from checks.per_node(infos, checks.memory)
    save = _save(found.primaries[0])
    yield from checks.per_node(primaries, lambda info: checks.persistence(info, save))
    yield from checks.per_node(primaries, checks.replication)


def _cluster(node: Node) -> Finding:
    fields = node.ask("cluster", "INFO")
    covered = fields.get("cluster_slots_ok", "0")
    if fields.get("cluster_state") != "ok" or covered != "16384":
        said = f"{fields.get('cluster_state')}, {covered} of 16384 hash slots served"
        return Finding(Level.BAD, "cluster", said, "see CLUSTER NODES: limits in the other hash slots can't be reached")
    return Finding(Level.GOOD, "cluster", "ok, all 16384 hash slots served")


def _save(node: Node) -> str | None:
    try:
        return str(node.ask("config_get", "save").get("save", ""))
    except StoreError:
        return None


def _rights(store: Store, prefix: str, found: Servers) -> Iterator[Finding]:
    faults = [verdict for verdict in verify(store, prefix) if verdict.fault]
    if not faults:
        yield Finding(Level.GOOD, "scripts", f"all {len(SCRIPTS)} run, and reply what they must")
        return
    barred = [each for each in faults if denied(StoreError(each.fault))]
    others: dict[str, list[str]] = {}
    for each in faults:
        if each not in barred:
            others.setdefault(each.fault, []).append(each.script)
    for fault, scripts in others.items():
        yield Finding(Level.BAD, "scripts", f"{', '.join(scripts)}: {fault}", "see the scripts' contract, on errors")
    if barred:
        names = ", ".join(each.script for each in barred)
        commands = sorted({word.lower() for script in SCRIPTS.values() for word in _commands(script.text)})
        rights = " ".join(f"+{word}" for word in ("eval", "evalsha", *commands, *(_CLUSTER if found.cluster else ())))
        yield Finding(
            Level.BAD,
            "rights",
            f"{_who(found.nodes[0])} may not run {names}: {barred[0].fault}",
            f"ACL SETUSER … ~{prefix}:* {rights}",
        )


def _commands(text: bytes) -> list[str]:
    return re.findall(r"\bcall\('(\w+)'", text.decode())


def _who(node: Node) -> str:
    try:
        name = node.ask("acl_whoami")
    except StoreError:
        return "this user"
    return f"the user {name.decode() if isinstance(name, bytes) else name}"


def _times(found: Servers, store: Store, prefix: str) -> Iterator[Finding]:
    ahead, unsure = {}, 0.0
    try:
        for node in found.primaries:
            before = time.time()
            seconds, micro = node.ask("time")
            after = time.time()
            ahead[node.name] = seconds + micro / 1e6 - (before + after) / 2
            unsure = max(unsure, (after - before) / 2)
        yield checks.clocks(ahead, unsure)
    except StoreError as error:
        yield Finding(Level.WARN, "clock", str(error), "ask as a user who may TIME")
    pings = []
    try:
        for node in found.primaries:
            pings += [_timed(lambda node=node: node.ask("ping")) for _ in range(_ROUNDS)]
        yield checks.round_trip("PING", pings)
    except StoreError as error:
        yield Finding(Level.WARN, "PING", str(error), "ask as a user who may PING")
    wire = Slots("pyslot-doctor", 1).wire(Naming(prefix))
    count = Call(SCRIPTS["count"], (wire.key,), (b"",))
    try:
        yield checks.round_trip("EVALSHA", [_timed(lambda: store.run(count)) for _ in range(_ROUNDS)])
    except StoreError as error:
        yield Finding(Level.BAD, "EVALSHA", str(error), "see the line on rights")


def _timed(call: object) -> float:
    began = time.perf_counter()
    call()  # type: ignore[operator]
    return time.perf_counter() - began


def _names(found: Servers, prefix: str) -> Iterator[Finding]:
    """Some callers with `hash_names` and some without count apart, and admit twice what they should."""
    plain: set[str] = set()
    hashed: set[str] = set()
    strange = walked = 0
    for scan, keys in walk(found.primaries, prefix):
        for key in keys:
            named = parse(key, prefix)
            if named is None:
                strange += 1
            else:
                (hashed if named.hashed else plain).add(named.subject)
        walked += scan.step
        if walked >= _LOOKED_AT:
            break
    looked = f" (in the first {walked:,} keys)" if walked >= _LOOKED_AT else ""
    if both := [name for name in plain if sha256(name.encode("utf-8", "surrogatepass")).hexdigest() in hashed]:
        said = f"{len(both)} subjects both hashed and plain, such as {both[0]!r}: they are counted twice{looked}"
        yield Finding(Level.BAD, "names", said, "give all limiters of this prefix the same hash_names")
    elif plain and hashed:
        said = f"{len(hashed)} hashed and {len(plain)} plain subjects under one prefix{looked}"
        yield Finding(Level.WARN, "names", said, "give all limiters of this prefix the same hash_names")
    else:
        kind = "hashed" if hashed else "plain"
        number = len(plain) + len(hashed)
        yield Finding(Level.GOOD, "names", f"{number} subjects, all {kind}{looked}" if number else f"none yet{looked}")
    if strange:
        yield Finding(
            Level.WARN, "names", f"{strange} keys under the prefix are no limits", "give pyslot a prefix of its own"
        )


def _guarded(what: str, look: object) -> Iterator[Finding]:
    try:
        yield from look()  # type: ignore[operator]
    except PyslotError as error:
        yield Finding(Level.WARN, what, str(error), "ask as a user who may")


def _how_to_reach(text: str) -> str:
    for word, advice in {
        "refused": "start the server, or mend host and port in the URL",
        "NOAUTH": "put user and password into the URL: redis://user:password@host",
        "WRONGPASS": "mend user and password in the URL",
        "invalid username-password": "mend user and password in the URL",
        "Authentication required": "put user and password into the URL: redis://user:password@host",
        "NOPERM": "let this user PING",
        "not known": "mend the host's name in the URL",
        "CERTIFICATE": "mend the certificate, or name its authority: ?ssl_ca_certs=…",
        "MOVED": "put +cluster into the URL",
    }.items():
        if word.lower() in text.lower():
            return advice
    return "see that the server runs and that a firewall lets you through; wait longer with --patience"


def _show(findings: list[Finding]) -> None:
    out = console()
    table = Table.grid(padding=(0, 2, 0, 0))
    for finding in findings:
        said = Text(finding.said)
        if finding.advice:
            said.append(f"\n→ {finding.advice}", style="bold")
        table.add_row(Text(finding.level.name.lower(), style=_STYLES[finding.level]), finding.what, said)
    out.print(table)
    counts = {level: sum(finding.level is level for finding in findings) for level in Level}
    if not counts[Level.WARN] and not counts[Level.BAD]:
        out.print(f"\nAll {counts[Level.GOOD]} are good.")
    else:
        out.print(f"\n{counts[Level.BAD]} bad, {counts[Level.WARN]} to look at, {counts[Level.GOOD]} good.")
