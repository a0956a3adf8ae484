"""Recorded traffic, from CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pyslot.errors import UsageError

ROLES: dict[str, tuple[str, ...]] = {
    "time": ("timestamp", "time", "arrived_at", "arrival", "at", "start", "start_time", "created_at"),
    "prompt": ("contexttokens", "prompt_tokens", "input_tokens", "prompt", "request_tokens", "num_prefill_tokens"),
    "answer": (
        "generatedtokens",
        "completion_tokens",
        "output_tokens",
        "answer",
        "response_tokens",
        "num_decode_tokens",
    ),
    "hold": ("duration", "duration_s", "seconds", "hold", "elapsed", "latency_s"),
}
"""What a column may be, and the names it is known by."""
_MILLISECONDS = 1e11
"""A number beyond this is a time in ms since 1970, one below it in seconds, since 1970 or since the trace began."""


class Request(NamedTuple):
    """One request of a trace."""

    at: int
    """When it arrived, in ms."""
    prompt: int
    """Tokens known when it arrives."""
    answer: int
    """Tokens known when it is complete."""
    hold_ms: int
    """How long it holds its slot."""
    subject: str
    """Whose it is."""


def milliseconds(text: str) -> int:
    """A time as traces write it: ISO 8601 with any number of digits, or a number."""
    try:
        number = float(text)
    except ValueError:
        at = datetime.fromisoformat(text)
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    return int(number if abs(number) > _MILLISECONDS else number * 1000)


def columns_of(header: Sequence[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Which column is what: as chosen, else by the names that are known."""
    found = {}
    for role, names in ROLES.items():
        if role in chosen:
            if chosen[role] not in header:
                raise UsageError(f"there is no column {chosen[role]!r} in the trace: it has {', '.join(header)}")
            found[role] = chosen[role]
        elif known := [name for name in header if name.strip().lower() in names]:
            found[role] = known[0]
    if "time" not in found:
        raise UsageError(f"which column is the time? Say --columns time=NAME: there are {', '.join(header)}")
    return found


def read(path: Path, chosen: Mapping[str, str], *, by: str | None, speed: float) -> list[Request]:
    """A trace by arrival. `by`: the column of subjects; `speed`: tokens a second, where no column says how long."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines)
        try:
            header = reader.fieldnames or ()
            columns = columns_of(header, chosen)
            if by is not None and by not in header:
                raise UsageError(f"there is no column {by!r} in the trace: it has {', '.join(header)}")
            if not {"answer", "hold"} & set(columns):
                raise UsageError("how long does a request hold its slot? Say --columns hold=NAME, or answer=NAME")
            requests = [_request(row, columns, by, speed) for row in reader]
        except UnicodeDecodeError:
            raise UsageError(f"{path} is no CSV in UTF-8") from None
        except csv.Error as error:
            raise UsageError(f"{path}, line {reader.line_num}: {error}") from None
        except (ValueError, OverflowError) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"{path}, line {reader.line_num}: {error}") from None
    if not requests:
        raise UsageError(f"{path} holds no requests")
    return sorted(requests, key=lambda request: request.at)


def _request(row: Mapping[str, str | None], columns: Mapping[str, str], by: str | None, speed: float) -> Request:
    def text(role: str) -> str:
        return (row[columns[role]] or "").strip()

    try:
        at = milliseconds(text("time"))
    except ValueError:
        raise ValueError(f"{text('time')!r} in the column {columns['time']} is no time") from None
    prompt, answer, hold = (_number(text(role), columns[role]) if role in columns else 0 for role in list(ROLES)[1:])
    held = hold if "hold" in columns else answer / speed
    return Request(at, round(prompt), round(answer), round(held * 1000), (row[by] or "") if by else "")


def _number(text: str, column: str) -> float:
    try:
        number = float(text or 0)
    except ValueError:
        number = -1.0
    if not 0 <= number < 2**53:
        raise ValueError(f"{text!r} in the column {column} is no number of at least 0")
    return number
