"""Estimators in files: one safetensors file with a JSON header and a checksum, and no code in it."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from .._core import LARGEST_HEADER, DamagedError, programs, read_sealed, sealed, write_whole
from ._base import Shell
from ._codec import VERSION, Decoder, Encoder, UnreadableError, as_text

_FORMAT = 1
_ADVICE = "Save the estimator again."


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Writes an estimator, fitted or not, to one file, whole or not at all.

    Args:
        estimator: an estimator of freeenergy, or of a class that extends one.
        path: where to; a file that is there is replaced.

    The file holds the parameters (except `checkpoint`), what `fit` has left, and the versions.  A
    parameter with a function that has no name, such as a closure of Optax, is replaced by one that asks
    to be set again; `freeenergy.learning.Optimiser` describes optimisers in a way that files keep.
    """
    if not isinstance(estimator, Shell):
        raise ValueError(
            f"Only estimators of freeenergy can be saved; of a pipeline or a search, save the fitted part. "
            f"Got a {type(estimator).__name__} instead."
        )
    encoder = Encoder(estimator)
    header = {
        "format": _FORMAT,
        "versions": {name: importlib.metadata.version(name) for name in ("freeenergy", "jax", "numpy")},
        "estimator": encoder.encode(estimator, "", None),
        "foreign": sorted(encoder.foreign),
    }
    data = sealed(encoder.tensors, header)
    length = int.from_bytes(data[:8], "little")
    if length > LARGEST_HEADER:
        raise ValueError(
            f"{encoder.root} cannot be saved: what is not an array takes {length >> 20} MiB, of which a "
            f"file holds {LARGEST_HEADER >> 20}."
        )
    write_whole(path, data)


@contextlib.contextmanager
def _explained(path: Any) -> Iterator[None]:
    """Turns whatever is wrong with a file into one sentence."""
    try:
        yield
    except UnreadableError as error:
        raise ValueError(f"The file '{path}' {error}") from None
    except DamagedError as error:
        raise ValueError(f"The file '{path}' {error}. {_ADVICE}") from None
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        SafetensorError,
        TypeError,
        ValueError,
    ):
        raise ValueError(f"The file '{path}' does not hold what its header says. {_ADVICE}") from None


def _read_header(path: Path) -> dict[str, Any]:
    """The header of a file whose checksum is right."""
    if path.is_dir():
        raise IsADirectoryError(f"'{path}' is a folder. Name a file in it.")
    if not path.exists():
        raise FileNotFoundError(f"There is no file '{path}'. Check the name.")
    if not path.is_file():
        raise UnreadableError("is not a regular file. Name one that `save` has written.")
    with path.open("rb") as file:
        return read_sealed(file, _check_format)


def _check_format(header: Any) -> None:
    """Refuses a header that is none of ours, or of a format that we do not know."""
    match header:
        case {"format": int(version)} if version > _FORMAT:
            raise UnreadableError(f"has the format {version}, newer than freeenergy {VERSION}. Update it.")
        case {"format": int(version), "estimator": dict()} if version == _FORMAT:
            versions, foreign = header.get("versions", {}), header.get("foreign", [])
            match versions, foreign:
                case dict(), list() if all(isinstance(v, str) for v in (*versions.values(), *foreign)):
                    return
            raise ValueError
    raise UnreadableError("is not an estimator of freeenergy. Name a file that `save` of one has written.")


def load(path: str | os.PathLike[str], *, trusted: Iterable[Any] = ()) -> Any:
    """The estimator in a file that `save` has written.

    Args:
        path: the file.
        trusted: classes and functions of your own that the file may name, if the estimator has any.

    A file that is damaged, foreign, of a newer format or made to do harm is refused: `ValueError` with
    one sentence.  The checksum finds accidents; it does not tell who wrote the file.

    >>> import tempfile, freeenergy as fe
    >>> model = fe.GaussianMixture(2, random_state=0).fit([[0.0], [0.1], [5.0], [5.1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.safetensors")
    ...     again = fe.load(f"{folder}/model.safetensors")
    >>> again.score([[0.0]]) == model.score([[0.0]])
    True
    """
    programs.check_process()
    with _explained(path):
        header = _read_header(Path(path))
        with safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        decoder = Decoder(header, tensors, trusted)
        made = decoder.decode(header["estimator"])
        if not isinstance(made, Shell):
            raise UnreadableError("holds something that is not an estimator. Do not trust it.")
        if unused := tensors.keys() - decoder.used:
            raise UnreadableError(
                f"has the array {min(unused)[:80]!r}, which belongs to nothing. Do not trust it."
            )
    return made


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What is in a file that `save` has written, as plain values, without loading its arrays.

    Returns:
        `class`, `fitted`, `parameters` and `attributes` (by name; what is not a plain value as text),
        `n_features_in` and `feature_names` (None if unknown), `format`, `versions`, `foreign` (names to
        be trusted), `numbers` (entries of all arrays) and `bytes`.

    >>> import tempfile, freeenergy as fe
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fe.KMeans(3).save(f"{folder}/model.safetensors")
    ...     found = describe(f"{folder}/model.safetensors")
    >>> found["class"], found["fitted"], found["parameters"]["n_clusters"]
    ('KMeans', False, 3)
    """
    with _explained(path):
        header = _read_header(Path(path))
        with safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
            types = {name: str(part.get_dtype()) for name, part in slices.items()}
        match header["estimator"]:
            case {"estimator": [str(name), dict(parameters), dict(attributes)]}:
                pass
            case _:
                raise UnreadableError("holds something that is not an estimator. Do not trust it.")
        text = functools.partial(as_text, tensors={n: f"{types[n]}{list(s)}" for n, s in shapes.items()})
        match attributes.get("feature_names_in_"):
            case {"objects": [_, list(names)]} if all(isinstance(name, str) for name in names):
                pass
            case None:
                names = None
            case _:
                raise ValueError
        match attributes.get("n_features_in_"):
            case None | int() as columns:
                pass
            case _:
                raise ValueError
        return {
            "class": name.rpartition(".")[2],
            "fitted": any(n.endswith("_") for n in attributes),
            "parameters": {n: text(node) for n, node in parameters.items()},
            "attributes": {n: text(node) for n, node in attributes.items()},
            "n_features_in": columns,
            "feature_names": names,
            "format": header["format"],
            "versions": header.get("versions", {}),
            "foreign": header.get("foreign", []),
            "numbers": sum(math.prod(shape) for shape in shapes.values()),
            "bytes": Path(path).stat().st_size,
        }
