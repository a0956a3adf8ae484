"""What a server's own figures (INFO) mean for limits kept there. Pure: nothing here asks anybody."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, TypeAlias

Info: TypeAlias = Mapping[str, Any]
"""What INFO says of one server."""

OLDEST = {"Redis": (6, 2), "Valkey": (7, 2)}
LAG = 5
"""Seconds, or MB, that a replica may be behind."""


class Level(IntEnum):
    """How things are; also the exit status."""

    GOOD = 0
    WARN = 1
    BAD = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the diagnosis."""

    level: Level
    what: str
    said: str
    advice: str = ""
    """What to do; empty where all is well."""


def product(info: Info) -> tuple[str, str]:
    """Name and version."""
    if "valkey_version" in info:
        return "Valkey", str(info["valkey_version"])
    return "Redis", str(info.get("redis_version", "of unknown version"))


def version(info: Info) -> Finding:
    name, number = product(info)
    oldest = OLDEST[name]
    known = tuple(int(part) for part in number.split(".")[:2] if part.isdigit())
    if known and known < oldest:
        wanted = ".".join(map(str, oldest))
        return Finding(Level.BAD, "version", f"{name} {number}", f"upgrade: {name} {wanted} is the oldest that works")
    return Finding(Level.GOOD, "version", f"{name} {number}")


def role(info: Info) -> Finding:
    what = "role"
    if info.get("loading") or info.get("async_loading"):
        return Finding(Level.BAD, what, "still loading its data", "wait until it has")
    if info.get("role") != "master":
        master = f"{info.get('master_host')}:{info.get('master_port')}"
        return Finding(Level.BAD, what, f"a replica of {master}, takes no writes", f"use its primary, {master}")
    return Finding(Level.GOOD, what, "primary, takes writes")


def topology(infos: Mapping[str, Info], *, cluster: bool) -> Finding:
    """`cluster`: whether the URL says so."""
    what = "topology"
    modes = {str(info.get("redis_mode", info.get("server_mode", "standalone"))) for info in infos.values()}
    if cluster:
        primaries = sum(info.get("role") == "master" for info in infos.values())
        said = f"cluster: {primaries} primaries, {len(infos) - primaries} replicas"
        if modes != {"cluster"}:
            return Finding(Level.BAD, what, "a server of its own, no cluster", "take +cluster out of the URL")
        return Finding(Level.GOOD, what, said)
    if "cluster" in modes:
        return Finding(Level.BAD, what, "one node of a cluster", "put +cluster into the URL: redis+cluster://…")
    if "sentinel" in modes:
        return Finding(Level.BAD, what, "a sentinel, which keeps no data", "use redis+sentinel://host:port/service")
    return Finding(Level.GOOD, what, "one server of its own")


def eviction(info: Info) -> Finding:
    what, policy, most = "eviction", str(info.get("maxmemory_policy", "unknown")), info.get("maxmemory", 0)
    if policy == "noeviction":
        return Finding(Level.GOOD, what, "noeviction: nothing is thrown out")
    if policy == "unknown":
        return Finding(Level.WARN, what, "the server does not tell its policy", "see that it is noeviction")
    # Every key of ours has a time to live, so volatile-* takes it for fair game just as allkeys-* does.
    advice = "CONFIG SET maxmemory-policy noeviction, or a server of its own for limits"
    if most:
        return Finding(Level.BAD, what, f"{policy}: held slots and counts are thrown out when memory is full", advice)
    return Finding(
        Level.WARN, what, f"{policy}, at rest while maxmemory is 0: would throw out slots and counts", advice
    )


def memory(info: Info) -> Finding:
    what, used, most = "memory", int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not most:
        return Finding(Level.GOOD, what, f"{_size(used)} used, no maxmemory")
    part = used / most
    said = f"{_size(used)} of {_size(most)} used, {part:.0%}"
    if part < 0.75:
        return Finding(Level.GOOD, what, said)
    advice = "raise maxmemory; when it is full nobody is admitted (a slot takes about 100 bytes)"
    return Finding(Level.WARN if part < 0.9 else Level.BAD, what, said, advice)


def persistence(info: Info, save: str | None) -> Finding:
    """`save`: the setting of that name; None where it could not be read."""
    what = "persistence"
    failed = [
        name for name in ("rdb_last_bgsave_status", "aof_last_write_status") if info.get(name) not in {"ok", None}
    ]
    if failed:
        return Finding(
            Level.BAD,
            what,
            f"the last write to disk failed ({failed[0]})",
            "see the server's log: it may refuse all writes (MISCONF)",
        )
    if info.get("aof_enabled"):
        return Finding(Level.GOOD, what, "append-only file")
    advice = "appendonly yes, if a restart must not admit anew what is in flight"
    if save:
        return Finding(Level.WARN, what, "snapshots: a restart forgets what came after the last", advice)
    if save is None:
        return Finding(Level.WARN, what, "no append-only file", advice)
    return Finding(
        Level.WARN, what, "none: a restart forgets all; held slots register again, windows start empty", advice
    )


def replication(info: Info) -> Finding:
    what, offset = "replicas", int(info.get("master_repl_offset", 0))
    replicas = [value for name, value in info.items() if name.startswith("slave") and isinstance(value, dict)]
    if not replicas:
        return Finding(Level.GOOD, what, "none, so none that lags")
    down = [each for each in replicas if each.get("state") != "online"]
    behind = max((offset - int(each.get("offset", 0)) for each in replicas), default=0)
    silent = max((int(each.get("lag", 0)) for each in replicas), default=0)
    said = f"{len(replicas)}, {_size(max(behind, 0))} and {silent} s behind at most"
    if down:
        advice = "see that replica's log: a fail-over to it would forget what is in flight"
        return Finding(Level.WARN, what, f"{len(down)} of {len(replicas)} not online", advice)
    if behind > LAG * 1_000_000 or silent > LAG:
        return Finding(Level.WARN, what, said, "a fail-over forgets what was not copied: see its network and load")
    return Finding(Level.GOOD, what, said)


def per_node(infos: Mapping[str, Info], check: Callable[[Info], Finding]) -> list[Finding]:
    """One line where all servers are well, else one for each thing that is not, with those where it is not."""
    found = {name: check(info) for name, info in infos.items()}
    if len(found) == 1:
        return list(found.values())
    where: dict[Finding, list[str]] = {}
    for name, finding in found.items():
        where.setdefault(finding, []).append(name)
    worse = {finding: names for finding, names in where.items() if finding.level > Level.GOOD}
    if worse:
        return [
            replace(each, said=f"{_whole(names, len(found)) or ', '.join(names)}: {each.said}")
            for each, names in worse.items()
        ]
    first, names = next(iter(where.items()))
    text = "; ".join(each.said for each in where)
    return [replace(first, said=f"{text} ({_whole(names, len(found))})" if len(where) == 1 else text)]


def _whole(names: Sequence[str], number: int) -> str:
    return f"all {number}" if len(names) == number else ""


def versions(infos: Mapping[str, Info]) -> Iterable[Finding]:
    yield from per_node(infos, version)
    if len(mixed := sorted({" ".join(product(info)) for info in infos.values()})) > 1:
        yield Finding(Level.WARN, "version", f"differing: {', '.join(mixed)}", "finish the upgrade")


def clocks(ahead: Mapping[str, float], unsure: float) -> Finding:
    """`ahead`: seconds by which each server's clock is before ours, known to within `unsure`."""
    what, most = "clock", max(ahead.values(), key=abs)
    apart = max(ahead.values()) - min(ahead.values())
    if apart > 1 + 2 * unsure:
        advice = "set them by NTP: a fail-over would move every lease and window by as much"
        return Finding(Level.WARN, what, f"the servers' clocks differ by {apart:.1f} s", advice)
    if abs(most) > 1 + unsure:
        side = "ahead of" if most > 0 else "behind"
        advice = "limits go by the server's clock alone and hold; times in logs differ. Set both by NTP"
        return Finding(Level.WARN, what, f"{abs(most):.1f} s {side} this machine's", advice)
    return Finding(Level.GOOD, what, f"{1000 * most:+.0f} ms against this machine's (known to {1000 * unsure:.0f} ms)")


def round_trip(what: str, seconds: Sequence[float]) -> Finding:
    median, worst = sorted(seconds)[len(seconds) // 2], max(seconds)
    said = f"{1000 * median:.2f} ms, {1000 * worst:.2f} ms at worst of {len(seconds)}"
    if median > 0.25:
        return Finding(Level.BAD, what, said, "calls give up after 1 s: use a server nearer by, or find what slows it")
    if median > 0.01 or worst > 0.25:
        return Finding(Level.WARN, what, said, "every request waits for this: see SLOWLOG, LATENCY DOCTOR, the network")
    return Finding(Level.GOOD, what, said)


def _size(number: int) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:,.0f} {unit}" if unit == "bytes" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000  # type: ignore[assignment]  # a float from here on
    raise AssertionError
