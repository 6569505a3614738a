"""Files that are written whole or not at all, and that tell when they were changed since."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors.numpy import save

LARGEST_HEADER = 2**24
_NO_DIGEST = "0" * 64


class DamagedError(ValueError):
    """What is wrong with a file: what comes after its name in a sentence, without the full stop."""


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes `data` to `path`; whatever interrupts it, there is the former file or the new one."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            # a rename may reach the disk before the content does
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        reason = error.strerror or str(error)
        sentence = f"'{path}' was not written: {reason}. A file that was there before is unchanged."
        raise type(error)(error.errno, sentence) from None


def sealed(tensors: dict[str, np.ndarray], header: dict[str, Any]) -> bytes:
    """A safetensors file of `tensors`, with `header` as JSON in its metadata and a checksum of it all.

    The header gets an entry `sha256`, which counts as 64 zeros in the checksum.
    """
    text = json.dumps({"sha256": _NO_DIGEST} | header)
    data = save(tensors, metadata={"freeenergy": text})
    end = 8 + int.from_bytes(data[:8], "little")
    digest = hashlib.sha256(data).hexdigest()
    # the first: safetensors puts the metadata before the names of arrays
    return data[:end].replace(_NO_DIGEST.encode(), digest.encode(), 1) + data[end:]


def read_sealed(file: BinaryIO, check: Callable[[Any], None]) -> dict[str, Any]:
    """The header of a file that `sealed` has made, if its checksum is right.

    Args:
        file: open at its beginning.
        check: raises what is wrong with a header of another kind or format (None if there is none),
            before the checksum is looked at.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if not start:
        raise DamagedError("is empty")
    if length > size - 8:
        raise DamagedError("is cut off or is no safetensors file")
    if length > LARGEST_HEADER:
        raise DamagedError(f"has a header of more than {LARGEST_HEADER >> 20} MiB")
    raw = file.read(length)
    try:
        match json.loads(raw):
            case {"__metadata__": {"freeenergy": str(text)}}:
                header = json.loads(text)
            case _:
                header = None
    except (ValueError, RecursionError):
        raise DamagedError("is damaged or is no safetensors file") from None
    check(header)
    match header:
        case {"sha256": str(digest)} if len(digest) == len(_NO_DIGEST):
            found = hashlib.sha256(start + raw.replace(digest.encode(), _NO_DIGEST.encode(), 1))
        case _:
            raise DamagedError("has no checksum")
    while chunk := file.read(2**20):
        found.update(chunk)
    if found.hexdigest() != digest:
        raise DamagedError("is damaged: its checksum is wrong")
    return header
