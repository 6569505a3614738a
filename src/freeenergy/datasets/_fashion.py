"""Images of clothes, from the files of a Debian package."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from ._builtin import DataKind, Dataset

_PACKAGE = "/usr/share/datasets/fashion-mnist"
_LABELS = ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]


def fashion_mnist(*, test: bool = False, folder: str | Path = _PACKAGE) -> Dataset:
    """Fashion-MNIST: images of 28 × 28 whole numbers 0 … 255, of ten kinds of clothes (Xiao et al. 2017).

    Args:
        test: the 10,000 images for testing instead of the 60,000 for training.
        folder: where the four files are; by default where Debian's package dataset-fashion-mnist puts them.

    >>> fashion_mnist(folder="nowhere")
    Traceback (most recent call last):
      ...
    FileNotFoundError: Fashion-MNIST is not in nowhere. Install Debian's package dataset-fashion-mnist, ...
    """
    part = "t10k" if test else "train"
    places = [Path(folder) / f"{part}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
    if not all(place.is_file() for place in places):
        raise FileNotFoundError(
            f"Fashion-MNIST is not in {folder}. Install Debian's package dataset-fashion-mnist, or call "
            "freeenergy.datasets.fashion_mnist with the 'folder' of its four files."
        )
    pixels, y = (_read(place, head) for place, head in zip(places, (16, 8), strict=True))
    text = f"{len(y)} images of clothes of 28 × 28 pixels with whole numbers 0 … 255."
    names = [f"pixel_{i}_{j}" for i in range(28) for j in range(28)]
    X = pixels.reshape(len(y), -1).astype(float)
    return Dataset(X, y.astype(int), names, _LABELS, text, DataKind.IMAGES)


def _read(place: Path, head: int) -> np.ndarray:
    """The numbers of a file after what it says of their shape."""
    with gzip.open(place) as file:
        return np.frombuffer(file.read(), np.uint8, offset=head)
