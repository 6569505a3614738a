"""Autoencoders: the linear one against principal components, the others against what they promise."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import freeenergy as fe
from freeenergy.learning import (
    Batch,
    ContractiveCode,
    GaussianCorruption,
    MaskingCorruption,
    Reconstruction,
    SparseCode,
)
from freeenergy.models import Autoencoder, layer_autoencoder, mlp_autoencoder, stacked
from freeenergy.nn import MLP, Linear

RNG = np.random.default_rng(0)
KEY = jax.random.key(0)
X = RNG.normal(size=(128, 2)) @ RNG.normal(size=(2, 4)) + 0.3 * RNG.normal(size=(128, 4)) + 5
Z = (X - X.mean(0)) / X.std(0)
SMALL = {"width": 8, "max_iter": 30, "batch_size": 32, "random_state": 0}


def test_a_linear_autoencoder_is_pca():
    # mckinzie L1: the plane of PCA, and the error is the sum of the eigenvalues that are left out
    model = fe.Autoencoder(2, depth=0, random_state=0).fit(X)
    pca = fe.PCA(2).fit(Z)
    again = model.inverse_transform(model.transform(X))
    plane = pca.inverse_transform(pca.transform(Z)) * X.std(0) + X.mean(0)
    np.testing.assert_allclose(again, plane, atol=1e-4)
    left = np.sort(np.linalg.eigvalsh(np.cov(Z.T, bias=True)))[:2].sum()
    assert model.history_["objective"][-1] == pytest.approx(left / 2, rel=1e-6)
    # cho U20: the error of any row is an energy, the squared distance from the plane
    other = np.random.default_rng(2).normal(size=(9, X.shape[1])) * X.std(0) + X.mean(0)
    off = (model.inverse_transform(model.transform(other)) - other) / X.std(0)
    scaled = (other - X.mean(0)) / X.std(0)
    beside = scaled - scaled @ pca.components_.T @ pca.components_
    np.testing.assert_allclose(np.sum(off**2, axis=1), np.sum(beside**2, axis=1), rtol=1e-3)
    assert np.linalg.matrix_rank(again - again.mean(0), tol=1e-6) == 2
    assert model.converged_
    # rows with holes are learned from what is there
    holes = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
    some = fe.Autoencoder(2, depth=0, random_state=0).fit(holes)
    codes = some.transform(holes)
    assert codes.shape == (128, 2)
    error = np.nanmean((some.inverse_transform(codes) - holes) ** 2) / np.nanvar(holes)
    assert error < 0.3


def test_it_is_no_density():
    model = fe.Autoencoder(1, **SMALL).fit(X)
    with pytest.raises(ValueError, match=r"it gives no probability of X\. Use VAE"):
        model.evidence(X)
    (line,) = fe.compare([model], X).table()
    assert line.error == "Autoencoder is no density: it gives no probability of X."
    with pytest.raises(ValueError, match=r"must have 1 columns. Got 3 instead"):
        model.inverse_transform(np.zeros((2, 3)))
    assert "no log-likelihood" in str(model.summary())
    full = fe.Autoencoder(4, **SMALL).fit(X)
    assert "keeps it from copying them" in str(full.summary())
    assert "copying" not in str(
        fe.Autoencoder(4, corruption=GaussianCorruption(), **SMALL).fit(X).summary()
    )


def linear(weight, back):
    return Autoencoder(
        MLP((Linear(jnp.asarray(weight), jnp.zeros(weight.shape[1])),)),
        MLP((Linear(jnp.asarray(back), jnp.zeros(back.shape[1])),)),
    )


def test_noise_and_penalties_against_linear_algebra():
    rng = np.random.default_rng(1)
    w, v = rng.normal(size=(4, 2)), rng.normal(size=(2, 4))
    model, batch = linear(w, v), Batch(jnp.asarray(Z), jnp.full(len(Z), 1 / len(Z)))

    def worth(objective, n=1):
        return np.asarray(jax.jit(jax.vmap(lambda k: objective(model, batch, k)))(jax.random.split(KEY, n)))

    plain = 0.5 * np.mean(np.sum((Z - Z @ w @ v) ** 2, axis=1))
    assert worth(Reconstruction())[0] == pytest.approx(plain, rel=1e-10)
    # noise of variance s² costs ½ s² ‖W V‖² on average; zeros for a share p have the variance p (1 − p) x²
    noisy = worth(Reconstruction(GaussianCorruption(0.5)), 400)
    expected = plain + 0.5 * 0.25 * np.sum((w @ v) ** 2)
    assert abs(noisy.mean() - expected) < 5 * noisy.std() / 20
    share = 0.3
    masked = worth(Reconstruction(MaskingCorruption(share)), 400)
    kept = Z - (1 - share) * Z @ w @ v
    spread = share * (1 - share) * np.mean(Z**2 @ np.sum((w @ v) ** 2, axis=1))
    assert abs(masked.mean() - 0.5 * (np.mean(np.sum(kept**2, 1)) + spread)) < 5 * masked.std() / 20
    sparse = worth(Reconstruction(penalty=SparseCode(0.7)))[0]
    assert sparse == pytest.approx(plain + 0.7 * np.mean(np.sum(np.abs(Z @ w), axis=1)), rel=1e-10)
    tight = worth(Reconstruction(penalty=ContractiveCode(0.7)))[0]
    assert tight == pytest.approx(plain + 0.7 * np.sum(w**2), rel=1e-10)
    # what is missing is not missed, and does not move a code
    hole = Batch(jnp.asarray(np.where(np.arange(4) == 1, np.nan, Z)), batch.weight)
    seen = np.where(np.arange(4) == 1, 0, Z)
    left = np.where(np.arange(4) == 1, 0, Z - seen @ w @ v)
    both = eqx.filter_jit(Reconstruction(penalty=ContractiveCode(1.0)))(model, hole, KEY)
    expected = 0.5 * np.mean(np.sum(left**2, 1)) + np.sum(np.delete(w, 1, 0) ** 2)
    assert float(both) == pytest.approx(expected, rel=1e-10)


def test_layers_one_after_the_other():
    whole = eqx.filter_jit(mlp_autoencoder)(4, 2, width=3, depth=2, dtype=float, key=KEY)
    stages = [layer_autoencoder(whole, place) for place in range(3)]

    @eqx.filter_jit
    def both(whole, stages, x):
        h = x
        for stage in stages:
            h = stage.encode(h)
        r = h
        for stage in reversed(stages):
            r = stage.decode(r)
        return (h, r), (whole.encode(x), whole.reconstruct(x))

    for own, wanted in zip(*both(whole, stages, Z[0]), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-12)
    assert eqx.tree_equal(stacked(whole, stages), whole)


def test_codes_that_are_sparse_or_greedy(tmp_path):
    # exact zeros, and more of them the more they cost (mckinzie L5, L6)
    loose, dear = (
        fe.Autoencoder(6, rectified=True, penalty=SparseCode(w), **SMALL).fit(X).transform(X)
        for w in (0.01, 1.0)
    )
    assert (dear == 0).mean() > (loose == 0).mean() > 0
    greedy = fe.Autoencoder(6, greedy=True, **SMALL).fit(X)
    assert greedy.stages_.shape == (2,)
    assert greedy.history_["objective"][-1] < 0.5 * Z.shape[1]
    greedy.save(tmp_path / "greedy.safetensors")
    again = fe.load(tmp_path / "greedy.safetensors")
    np.testing.assert_array_equal(again.transform(X), greedy.transform(X))
