"""Permit ids: unique across processes, short, and cheap to make."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from itertools import count

from pyslot.errors import InvalidLimit


class _Source:
    """A random part drawn once per process, and a counter."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.prefix = urlsafe_b64encode(os.urandom(9))
        self.numbers = count()


_source = _Source()
# A forked child would go on with its parent's ids.
os.register_at_fork(after_in_child=_source.renew)


def new_id() -> bytes:
    """A fresh id as it travels: 12 random characters (72 bits) of this process, and a number."""
    return b"%b%x" % (_source.prefix, next(_source.numbers))


def check_id(id: str) -> str:
    """A caller's own id, if it can be one."""
    if not isinstance(id, str) or not 1 <= len(id.encode("utf-8", "surrogatepass")) <= 128:
        raise InvalidLimit(f"id must be a string of 1 to 128 bytes, not {id!r}")
    return id


def encode_id(id: str) -> bytes:
    return id.encode("utf-8", "surrogatepass")


def decode_id(id: bytes) -> str:
    return id.decode("utf-8", "surrogatepass")
