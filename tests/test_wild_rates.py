"""A learning rate a thousand times too large: a sentence, and the model from before."""

import numpy as np
import pytest
from scipy import stats
from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe

X = fe.datasets.two_moons(400).X
GAUSSIAN = stats.norm.logpdf(X, X.mean(axis=0), X.std(axis=0)).sum(axis=1).mean()
WILD = {"width": 16, "max_iter": 20, "random_state": 0}


@pytest.mark.parametrize(
    ("model", "less"),
    [
        (fe.NormalizingFlow(layers=2, learning_rate=2.0, **WILD), 1e-6),
        # its start is a decoder with random weights
        (fe.VAE(2, learning_rate=3.0, **WILD), 1.0),
    ],
    ids=lambda v: type(v).__name__,
)
def test_a_wild_rate_ends_with_a_sentence_and_the_model_from_before(model, less):
    message = (
        f"{type(model).__name__}: training left the rows less likely than independent Gaussian columns"
    )
    with pytest.warns(ConvergenceWarning, match=message):
        model.fit(X)
    assert not model.converged_
    assert model.score(X) > GAUSSIAN - less
    assert np.isfinite(model.sample(20, random_state=0)).all()
