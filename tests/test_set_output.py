"""`set_output` wherever there is a `transform`, as scikit-learn has it."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from cases import CASES
from data import ROWS
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import freeenergy as fe
from freeenergy.shell import Transforms

NAMES = [name for name, case in CASES.items() if isinstance(case.estimator, Transforms) and not case.slow]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", NAMES)
def test_transform_gives_the_library_that_was_chosen(name):
    case = CASES[name]
    rows = (ROWS > 0).astype(float) if case.points is not None or case.counts else ROWS
    estimator = clone(case.estimator)
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    frame = pd.DataFrame(rows, columns=["a", "b"], index=[f"row {i}" for i in range(len(rows))])
    fitted = estimator.fit(frame)
    plain = np.asarray(fitted.transform(frame), float)
    titles = fitted.get_feature_names_out().tolist()
    asked = fitted.set_output(transform="pandas").transform(frame)
    assert isinstance(asked, pd.DataFrame)
    assert asked.columns.tolist() == titles
    assert asked.index.equals(frame.index)
    np.testing.assert_array_equal(asked.to_numpy(), plain)
    other = fitted.set_output(transform="polars").transform(frame)
    assert isinstance(other, pl.DataFrame)
    assert other.columns == titles
    np.testing.assert_array_equal(other.to_numpy(), plain)
    # a clone is set as its original
    assert isinstance(clone(fitted).fit(frame).transform(frame), pl.DataFrame)
    # what else is asked does not depend on it
    latent = fitted.latent(frame)
    assert latent is None or isinstance(latent, np.ndarray)
    np.testing.assert_array_equal(fitted.set_output(transform="default").transform(frame), plain)


def test_pipelines_pass_it_on():
    frame = pd.DataFrame(ROWS, columns=["a", "b"])
    line = make_pipeline(fe.Imputer(), fe.PCA(1)).set_output(transform="pandas")
    assert line.fit_transform(frame).columns.tolist() == ["pca0"]
