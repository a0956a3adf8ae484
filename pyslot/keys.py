"""From limits to keys: encoding, hash tags and hash slots."""

from __future__ import annotations

import re
from binascii import crc_hqx
from hashlib import sha256
from typing import NamedTuple, Self

from pyslot.errors import UsageError
from pyslot.loader import LAYOUT

HASH_SLOTS = 16384


class Wire(NamedTuple):
    """A limit as it travels: computed once for each limit object and naming."""

    key: bytes
    hash_slot: int
    rule: tuple[bytes, bytes, bytes]
    """Kind, limit and milliseconds: the key's part of `admit`."""
    span: bytes
    """The key's part of `finish` and `peek`: the window's length in milliseconds, or `s`."""
    keys: tuple[bytes, ...]
    """The keys of a call about this limit alone."""
    start: tuple[bytes, ...]
    """The head of a call that starts permits of this limit alone: of `acquire` for slots, of `admit` for a window."""

    @classmethod
    def make(cls, key: bytes, rule: tuple[bytes, bytes, bytes], span: bytes) -> Self:
        start = rule[1:] if rule[0] == b"s" else rule
        return cls(key, hash_slot(key), rule, span, (key,), (b"", b"", *start))


class Naming:
    """How one limiter names its keys."""

    __slots__ = ("hash_names", "local", "prefix")

    def __init__(self, prefix: str = "pyslot", *, hash_names: bool = False) -> None:
        if not isinstance(prefix, str) or not re.fullmatch(r"[A-Za-z0-9_.:-]+", prefix):
            raise UsageError(f"prefix must be letters, digits or any of _ . : - and not empty, not {prefix!r}")
        self.prefix = prefix
        self.hash_names = hash_names
        self.local = False
        """True once a limit is named that decides locally in an outage: then what others hold is to be remembered."""

    def key(self, subject: str, tag: str | None, *what: str) -> bytes:
        """The key of a limit: everything about one subject, or one tag, shares a hash slot."""
        subject = hashed(subject) if self.hash_names else _escape(subject)
        parts = [self.prefix, LAYOUT, f"{{{subject if tag is None else _escape(tag)}}}", *what]
        if tag is not None:
            parts.append(subject)
        return _bytes(":".join(parts))


def hashed(subject: str) -> str:
    return sha256(_bytes(subject)).hexdigest()


def escape_meter(meter: str) -> str:
    return _escape(meter).replace(":", "%3A")


def hash_slot(key: bytes) -> int:
    """The hash slot of a key, as Redis Cluster computes it: CRC16 over the hash tag, or over the whole key."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) % HASH_SLOTS


def wire_limit(limit: int | None, enforce: bool) -> bytes:
    """A limit as scripts take it: `5`, `~5` where it only reports, `-` for none."""
    if limit is None:
        return b"-"
    return b"%d" % limit if enforce else b"~%d" % limit


def _escape(name: str) -> str:
    # Only what could end a hash tag or pass for an escape; every other character stands for itself.
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")


def _bytes(text: str) -> bytes:
    # Lone surrogates are no UTF-8, but they are names somebody may have: two of them must not share a key.
    return text.encode("utf-8", "surrogatepass")


class Named(NamedTuple):
    """What a key tells of its limit."""

    subject: str
    """As it was given, or the SHA-256 of that in hex."""
    tag: str | None
    meter: str | None
    """What a window counts; None for slots."""
    per_ms: int | None
    """The length of a window."""

    @property
    def hashed(self) -> bool:
        """True where the subject has the form that `hash_names` gives it."""
        return re.fullmatch(r"[0-9a-f]{64}", self.subject) is not None


_NAME = re.compile(r"\{(?P<inner>[^{}]+)\}:(?:s|w:(?P<meter>[^:{}]+):(?P<per>[1-9][0-9]*))(?::(?P<subject>[^{}]+))?")


def parse(key: bytes, prefix: str) -> Named | None:
    """The inverse of `Naming.key`: which limit a key under this prefix is of. None for a key that is no limit's."""
    start = f"{prefix}:{LAYOUT}:".encode()
    if not key.startswith(start):
        return None
    try:
        text = key[len(start) :].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    if (found := _NAME.fullmatch(text)) is None:
        return None
    inner, subject = _unescape(found["inner"]), found["subject"]
    name, tag = (inner, None) if subject is None else (_unescape(subject), inner)
    meter = found["meter"]
    return Named(name, tag, None, None) if meter is None else Named(name, tag, _unescape(meter), int(found["per"]))


def _unescape(name: str) -> str:
    return name.replace("%7B", "{").replace("%7D", "}").replace("%3A", ":").replace("%25", "%")
