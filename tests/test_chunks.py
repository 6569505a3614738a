"""Rows in chunks: the same answers as from memory."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import polars as pl
import pytest

import freeenergy as fe
from freeenergy._core import streaming
from freeenergy.distributions import Diagonal
from freeenergy.learning import LBFGS, Gradient, fit, negative_log_likelihood
from freeenergy.shell import _density


@pytest.fixture
def small_sample(monkeypatch):
    # so that a stream of a few hundred rows is larger than its sample
    monkeypatch.setattr(_density, "_SAMPLE", 100)


def _rows(n: int = 700) -> np.ndarray:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 2.0]]) + 5
    X[: n // 2, 0] -= 8
    return X


def test_gaussian_of_chunks_has_the_moments_of_all_rows(small_sample):
    X = _rows()
    model = fe.GaussianDensity().fit(fe.Chunks(X, rows=150))
    np.testing.assert_allclose(model.mean_, X.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(model.covariance_, np.cov(X.T, bias=True), rtol=1e-8)
    # the history is the mean of −log p over all rows, in the units of the data
    np.testing.assert_allclose(model.history_["objective"][-1], -model.score(X), rtol=1e-9)


@pytest.mark.slow
def test_mixture_of_chunks_ends_where_one_from_memory_ends(small_sample):
    X = _rows()
    X[::17, 1] = np.nan
    parts = [X[:300], X[300:301], X[301:]]
    streamed = fe.GaussianMixture(2, random_state=0, tol=1e-10).fit(fe.Chunks(parts))
    memory = fe.GaussianMixture(2, random_state=0, tol=1e-10).fit(X)
    np.testing.assert_allclose(streamed.score(X), memory.score(X), atol=1e-7)
    order = np.argsort(streamed.means_[:, 0]), np.argsort(memory.means_[:, 0])
    np.testing.assert_allclose(streamed.means_[order[0]], memory.means_[order[1]], atol=1e-3)
    np.testing.assert_allclose(streamed.history_["objective"][-1], -streamed.score(X), rtol=1e-9)


def test_factor_analysis_of_a_file(small_sample, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 1)) * np.arange(1.0, 6.0) + rng.normal(size=(700, 5))
    np.save(tmp_path / "rows.npy", X)
    streamed = fe.FactorAnalysis(1, tol=1e-9).fit(fe.Chunks(tmp_path / "rows.npy", rows=256))
    memory = fe.FactorAnalysis(1, tol=1e-9).fit(X)
    np.testing.assert_allclose(streamed.score(X), memory.score(X), atol=1e-6)


def test_chunks_are_functions_arrays_and_files(tmp_path):
    X = _rows(6)
    np.save(tmp_path / "part.npy", X[:2])
    chunks = fe.Chunks([str(tmp_path / "part.npy"), X[2:4], lambda: X[4:]])
    np.testing.assert_array_equal(np.concatenate(list(chunks)), X)
    np.testing.assert_array_equal(np.concatenate(list(chunks[1:])), X[2:])


def test_chunks_are_data_frames():
    X = _rows(6)
    for frame in (pd.DataFrame(X), pl.DataFrame(X)):
        for chunks in (fe.Chunks(frame, rows=4), fe.Chunks([frame[:4], frame[4:]])):
            assert [len(part) for part in chunks] == [4, 2]
            np.testing.assert_array_equal(np.concatenate(list(chunks)), X)


def test_a_sample_of_chunks_is_fair():
    X = np.arange(4000.0)[:, None]
    chunks = fe.Chunks(X, rows=700)
    draws = [chunks.survey(np.asarray, sample=50, seed=seed).sample[:, 0] for seed in range(200)]
    assert all(len(np.unique(d)) == 50 for d in draws)
    # the mean of all draws has this standard deviation if each row is as likely as any other
    error = np.sqrt(4000**2 / 12 / 50 / 200)
    assert abs(np.mean(draws) - 1999.5) < 4 * error


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fe.Chunks([]), "Chunks must have at least one part. Got none."),
        (
            lambda: fe.Chunks(np.zeros((3, 1)), rows=0),
            r"The 'rows' parameter of Chunks must be an int in the range \[1, inf\). Got 0 instead.",
        ),
        (
            lambda: fe.Chunks(["a.csv"])[0],
            "Chunks read .npy files; give a function for others. Got 'a.csv'",
        ),
        (
            lambda: fe.VAE(2).fit(fe.Chunks(np.zeros((3, 1)))),
            "VAE cannot be fitted to Chunks: it needs its rows in memory.",
        ),
        (
            lambda: fe.GaussianDensity().fit(fe.Chunks(np.eye(3)), sample_weight=np.ones(3)),
            "GaussianDensity.fit takes neither weights nor labels with Chunks.",
        ),
        (lambda: fe.GaussianDensity().fit(fe.Chunks([np.eye(3), np.eye(2)])), "X has 2 features, but"),
        (lambda: fe.GaussianDensity().fit(fe.Chunks([np.eye(2), np.full((1, 2), np.inf)])), "infinity"),
    ],
)
def test_what_chunks_cannot_be(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_learner_that_needs_rows_is_refused():
    learner = LBFGS(negative_log_likelihood)
    sentence = r"^The learner LBFGS needs rows in memory\. Got rows that are read in chunks instead\.$"
    with pytest.raises(ValueError, match=sentence):
        fe.GaussianDensity(learner=learner, max_iter=1).fit(fe.Chunks(_rows(), rows=300))


def test_an_epoch_of_batches_sees_every_row_of_every_chunk_once():
    rows, seen = _rows(900), []

    def read(i):
        seen.append(i)
        return rows[300 * i : 300 * (i + 1)]

    def shift(model, batch, key):
        return batch.mean(batch.x @ model)

    learner, start = Gradient(optax.sgd(1.0), shift, batch_size=100), jnp.zeros(rows.shape[1])
    with streaming(read, [300, 300, 300], rows.shape[1], incomplete=False) as stream:
        result = fit(start, learner, stream, key=jax.random.key(0), max_iter=4)
    # the slope of a batch is its mean: nine batches an epoch are nine times the mean, in whatever order
    np.testing.assert_allclose(result.model, -36 * rows.mean(axis=0), rtol=1e-10)
    # every chunk in turn, from a random one on
    turns = np.array(seen).reshape(4, 3)
    assert (np.diff(turns, axis=1) % 3 == 1).all()
    assert len(set(turns[:, 0])) > 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_gradient_steps_on_chunks_end_at_the_moments_of_all_rows(small_sample):
    X = np.random.default_rng(1).permutation(_rows())
    slower = optax.sgd(optax.exponential_decay(0.2, 10, 0.9))
    learner = Gradient(slower, negative_log_likelihood, batch_size=100)
    model = fe.GaussianDensity(Diagonal(), learner=learner, max_iter=40, random_state=0)
    model.fit(fe.Chunks(X, rows=300))
    spread = X.std(axis=0)
    np.testing.assert_allclose(model.mean_, X.mean(axis=0), atol=0.01 * spread.max())
    np.testing.assert_allclose(np.diag(model.covariance_), spread**2, rtol=0.02)


@pytest.mark.parametrize(
    ("estimator", "missing", "good_reads"),
    [
        (fe.GaussianDensity(), False, 1),
        (fe.GaussianMixture(2, max_iter=20, tol=0.0, random_state=0), True, 4),
    ],
)
def test_a_chunk_that_cannot_be_read_again_says_why(small_sample, estimator, missing, good_reads):
    X, reads = _rows(), []
    X[::7, 0] = np.nan if missing else X[::7, 0]

    def second() -> np.ndarray:
        reads.append(1)
        if len(reads) > good_reads:
            raise OSError("the disk is gone")
        return X[400:]

    with pytest.raises(OSError, match=r"^the disk is gone$"):
        estimator.fit(fe.Chunks([X[:400], second]))
    assert len(reads) <= good_reads + 2  # no further step reads it: one reads it once or twice
