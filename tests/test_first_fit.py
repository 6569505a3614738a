"""A first fit in a new process makes nobody wait: few programs are compiled, and none for another fit."""

import jax
import numpy as np
import pytest
from cases import CASES, needs_labels
from data import ROWS
from sklearn.base import clone, is_classifier

from freeenergy import load
from freeenergy._core import count_compilations
from freeenergy.shell import AbstractImplicit, PredictsProbabilities, Transforms

# what a first fit and score of a table may compile
MOST = 6


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", [n for n, case in CASES.items() if not case.slow and not case.sequence])
def test_programs_of_a_first_fit_and_score(name, tmp_path):
    case = CASES[name]
    rows = ROWS
    if case.points is not None or case.counts:
        rows = (rows > 0).astype(float)
    estimator = clone(case.estimator)
    arguments = (rows, np.arange(len(rows)) % 2) if needs_labels(estimator) else (rows,)
    ask = "score_samples" if case.density else "predict_proba" if is_classifier(estimator) else "transform"
    if isinstance(estimator, AbstractImplicit) and not isinstance(estimator, Transforms):
        ask = "sample"
    if is_classifier(estimator) and not isinstance(estimator, PredictsProbabilities):
        ask = "predict"
    if case.answers is not None:
        arguments = rows, case.answers(np.zeros(len(rows)), np.random.RandomState(0))
        ask = "predict_interval"

    asked = (5, 0) if ask == "sample" else (rows,)

    def fit_and_score():
        getattr(estimator.fit(*arguments), ask)(*asked)

    jax.clear_caches()
    with count_compilations() as first:
        fit_and_score()
    assert first.count <= MOST
    with count_compilations() as second:
        fit_and_score()
    assert second.count == 0
    # nor does a model from a file
    estimator.save(tmp_path / "model.safetensors")
    with count_compilations() as third:
        getattr(load(tmp_path / "model.safetensors"), ask)(*asked)
    assert third.count == 0
