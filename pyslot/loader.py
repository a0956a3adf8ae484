"""The scripts as the library sends them: text, SHA1, and the call that names one."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from typing import NamedTuple

LAYOUT = "v1"


class Script(NamedTuple):
    """One Lua script of the contract (scripts/README.md)."""

    name: str
    text: bytes
    sha: bytes
    """Hex SHA1 of `text`: what EVALSHA takes."""
    read_only: bool


class Call(NamedTuple):
    """One script call: what a store runs, and the only thing that crosses to it.

    The arguments come in two parts so that calls which differ in their permits alone can travel as one: the reply
    to several permits is one record after another, all of the same length.
    """

    script: Script
    keys: tuple[bytes, ...]
    """Never empty; all in one hash slot where the store is a cluster."""
    head: tuple[bytes, ...]
    """What all permits share: the time, the mode and the rules of the keys."""
    permits: tuple[bytes, ...] = ()
    """Permit ids, each followed by its own figures."""


def load(layout: str = LAYOUT) -> dict[str, Script]:
    """Read every script of a layout, checking each text against the SHA1 the manifest pins."""
    root = files("pyslot").joinpath("scripts")
    manifest = json.loads(root.joinpath("manifest.json").read_text("utf-8"))
    scripts = {}
    for name, entry in manifest[layout].items():
        text = root.joinpath(layout, f"{name}.lua").read_bytes()
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest()
        if sha != entry["sha1"]:
            raise RuntimeError(f"scripts/{layout}/{name}.lua has SHA1 {sha}, the manifest says {entry['sha1']}")
        scripts[name] = Script(name, text, sha.encode(), entry["read_only"])
    return scripts
