"""What files are packed in, and how much may be unpacked."""

from __future__ import annotations

import dataclasses
import os
import zlib
from pathlib import Path
from typing import IO

# of the numbers or the text that a small file may unpack to; a tenth of a megabyte can hold gigabytes
_MOST_BYTES = 2**29
_BLANK = b"\xef\xbb\xbf \t\r\n"


class RefusedError(ValueError):
    """A sentence that is complete."""


def first_line(error: Exception) -> str:
    """The first line of an error, without its full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


@dataclasses.dataclass(frozen=True)
class Room:
    """How many bytes a file may unpack to."""

    name: str
    most: int

    def check(self, size: int) -> None:
        """Refuses what takes more, before it is unpacked."""
        check_size(self.name, size)
        if size > self.most:
            raise RefusedError(
                f"{self.name} unpacks to more than the {self.most / 2**20:.0f} MiB that a file of its size "
                "may. If you trust it, allow more (--max-bytes)."
            )


def inside(name: str) -> str:
    """What a file is called within a sentence.

    >>> inside("The input"), inside("'Sales.csv'")
    ('the input', "'Sales.csv'")
    """
    return name[0].lower() + name[1:]


def content_of(
    source: str | os.PathLike[str] | IO[bytes], max_bytes: int | None
) -> tuple[str, bytes, Room]:
    """What the file is called, its bytes, and how much they may unpack to."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        name = f"'{path}'"
        if not path.exists():
            raise FileNotFoundError(f"{name} does not exist.")
        if path.is_dir():
            raise ValueError(f"{name} is a folder. A file is needed.")
        if not path.is_file():
            raise ValueError(f"{name} is a device, a pipe or a socket. A file is needed.")
        check_size(name, path.stat().st_size)
        content = path.read_bytes()
    else:
        name, memory = "The input", _memory()
        # one byte more than is allowed tells that there is too much
        content = source.read(-1 if memory is None else memory // 3 + 1)
        check_size(name, len(content))
    room = Room(name, max(_MOST_BYTES, len(content)) if max_bytes is None else max_bytes)
    return name, _not_empty(name, _unpacked(name, content, room)), room


def _unpacked(name: str, content: bytes, room: Room) -> bytes:
    """What gzip has packed, if it has; refused as soon as it is too much."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    parts, size = [], 0
    try:
        while content.startswith(b"\x1f\x8b"):  # a file may hold several streams
            unpacking = zlib.decompressobj(wbits=31)
            while not unpacking.eof:
                part = unpacking.decompress(content, 1 << 24)
                if not part and not unpacking.unconsumed_tail and not unpacking.eof:
                    raise ValueError(f"{name} is a damaged gzip file: it ends too early.")
                content = unpacking.unconsumed_tail
                size += len(part)
                room.check(size)
                parts.append(part)
            content = unpacking.unused_data
    except zlib.error as error:
        raise ValueError(f"{name} is a damaged gzip file ({first_line(error)}).") from None
    return b"".join(parts)


def _not_empty(name: str, content: bytes) -> bytes:
    # a copy of a large file takes its time
    if not (content[:64] + content[-64:]).strip(_BLANK) and not content.strip(_BLANK):
        raise ValueError(f"{name} is empty.")
    return content


def _memory() -> int | None:
    """How much memory the machine has, if the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def check_size(name: str, size: int) -> None:
    """Refuses what would not leave room to work on it."""
    memory = _memory()
    if memory is not None and size > memory // 3:
        raise RefusedError(
            f"{name} has {size / 2**30:.1f} GiB, too much for a machine of {memory / 2**30:.1f} GiB. "
            "Take a part of its rows."
        )
