"""The library's own calls by hand: the same scripts, keys and arguments, each an EVALSHA of its own."""

from __future__ import annotations

from pyslot.calls import ACQUIRE, ADMIT, FINISH, RELEASE

Words = tuple[bytes | str, ...]

MANY = b"1000000000"


def take(key: bytes, *ids: bytes, limit: bytes = MANY, lease: bytes = b"60000") -> Words:
    """Acquire one slot; or one for each of many permits."""
    return ("EVALSHA", ACQUIRE.sha, b"1", key, b"", b"", limit, lease, *ids)


def give(key: bytes, *ids: bytes) -> Words:
    """Give it back."""
    return ("EVALSHA", RELEASE.sha, b"1", key, b"", *ids)


def reserve(key: bytes, id: bytes, units: bytes) -> Words:
    """Charge units to a window: 1 for a request that is only counted, or an estimate."""
    return ("EVALSHA", ADMIT.sha, b"1", key, b"", b"", b"w", MANY, b"60000", id, units)


def settle(key: bytes, id: bytes, units: bytes) -> Words:
    """Say how many they really were."""
    return ("EVALSHA", FINISH.sha, b"1", key, b"", b"60000", id, units)
