"""Data for commands, after a word on how they were read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._options import Reading
from ._speech import say

if TYPE_CHECKING:
    from ._files import Input


def read(data: str, reading: Reading, **options: Any) -> Input:
    """The data, after a word on how they were read if they could be read otherwise."""
    from . import _files

    found = _files.read(data, reading, **options)
    for note in found.notes:
        say(note)
    return found


def labels_for(models: dict[str, Any], found: Any, target: list[str] | None) -> list[Any]:
    """The labels, if there are any; classifiers cannot do without, and no other model takes them."""
    from sklearn.base import is_classifier

    classifiers = [words for words, model in models.items() if is_classifier(model)]
    if found.y is None:
        if classifiers:
            raise ValueError(
                f"{classifiers[0]} tells labels from the other columns. Name the column that has them with "
                "--target NAME."
            )
        return []
    if not classifiers:
        say(f"Column {(target or [''])[0]!r} is left out: no model here tells it from the others.")
        return []
    return [found.y]
