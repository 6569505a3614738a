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


def answers_for(models: dict[str, Any], found: Any, target: list[str] | None) -> list[Any]:
    """Labels or numbers to be told, if there are any; classifiers and regressors cannot do without."""
    from sklearn.base import is_classifier, is_regressor
    from sklearn.utils import get_tags

    regressors = [words for words, model in models.items() if is_regressor(model)]
    # those that tell labels, and those that are about rows of each label
    classifiers = [
        words
        for words, model in models.items()
        if get_tags(model).target_tags.required and words not in regressors
    ]
    name = (target or [""])[0]
    if found.y is None:
        for words, what in ((classifiers, "labels"), (regressors, "numbers")):
            if words:
                tells = "tells" if is_classifier(models[words[0]]) or what == "numbers" else "needs"
                source = "from" if tells == "tells" else "beside"
                raise ValueError(
                    f"{words[0]} {tells} {what} {source} the other columns. Name the column that has them "
                    "with --target NAME."
                )
        return []
    if classifiers:
        return [found.y]
    if regressors:
        return [numbers(found.y, name, regressors[0])]
    say(f"Column {name!r} is left out: no model here tells it from the others.")
    return []


def numbers(y: Any, name: str, model: str) -> Any:
    """What a model of numbers is to tell, under its name; labels are refused."""
    import polars as pl

    if y.dtype.kind not in "iufb":
        raise ValueError(
            f"Column {name!r} of --target holds labels, and {model} tells numbers. Use a model of labels, "
            "such as softmax-regression."
        )
    return pl.Series(name, y.astype(float))
