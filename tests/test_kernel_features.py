"""Features of kernels beside scikit-learn's, the kernels themselves, and the law of large numbers."""

import jax
import numpy as np
import pytest
from data import ROWS
from sklearn.kernel_approximation import Nystroem

import freeenergy as fe
from freeenergy import kernels as k
from freeenergy.models import FourierFeatures, LandmarkFeatures

X = ROWS
NEW = np.random.default_rng(1).normal(size=(30, 2))


def test_landmarks_are_exact_where_they_are_and_scikit_learn_agrees():
    kernel = 1.5 * k.Matern(1.5, [0.8, 1.6])
    model = fe.Nystroem(kernel, n_components=20, standardise=False, random_state=0).fit(X)
    landmarks = model.components_
    assert len(landmarks) == 20
    features, own = model.transform(NEW), model.transform(landmarks)
    np.testing.assert_allclose(own @ own.T, kernel.gram(landmarks), atol=1e-9)
    np.testing.assert_allclose(features @ own.T, kernel.gram(NEW, landmarks), atol=1e-8)
    # inner products are those of projections: never more than the kernel has
    assert (kernel.diagonal(NEW) - (features**2).sum(axis=1) > -1e-9).all()
    other = Nystroem(lambda a, b: kernel(a, b), n_components=20).fit(landmarks).transform(NEW)
    np.testing.assert_allclose(features @ features.T, other @ other.T, atol=1e-7)


def test_more_landmarks_are_nearer_to_the_kernel_and_all_are_it():
    gram, errors = k.RBF().gram(X), []
    for size in (5, 20, 80, 500):
        features = fe.Nystroem(k.RBF(), n_components=size, standardise=False, random_state=0).fit_transform(
            X
        )
        errors.append(np.abs(features @ features.T - gram).max())
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-5
    assert features.shape == (len(X), len(X))


def test_random_waves_average_to_the_kernel():
    kernel, size = 2.0 * k.Matern(2.5, 1.3) + 0.5 * k.RBF(0.7), 20_000
    model = fe.RandomFourierFeatures(kernel, n_components=size, standardise=False, random_state=0).fit(X)
    features = model.transform(NEW)
    # a product of two waves with random phases has at most the variance v² · 3/2
    error = 2.5 * np.sqrt(1.5 / size)
    assert np.abs(features @ features.T - kernel.gram(NEW)).max() < 4.5 * error
    # without phases it is half of k(x − y) and half of k(x + y)
    waves = np.sqrt(2 * 2.5 / size) * np.cos(NEW @ model.frequencies_)
    wrong = 0.5 * (kernel.gram(NEW, NEW) + kernel.gram(NEW, -NEW))
    assert np.abs(waves @ waves.T - 2 * wrong).max() < 9 * error


def test_a_kernel_is_a_sum_of_matrices_of_rank_one():
    model = fe.RandomFourierFeatures(n_components=7, random_state=0).fit(X)
    features = model.transform(NEW)
    parts = [np.outer(wave, wave) for wave in features.T]
    np.testing.assert_allclose(sum(parts), features @ features.T, atol=1e-12)
    assert np.linalg.matrix_rank(features @ features.T) == 7


@pytest.mark.parametrize("model", [fe.Nystroem(n_components=20), fe.RandomFourierFeatures(n_components=20)])
def test_features_of_rows_with_holes_are_averages_and_names_and_files_are_kept(model, tmp_path):
    model = model.set_params(random_state=0)
    holes = NEW.copy()
    holes[3, 0] = np.nan
    model.fit(X)
    found = model.transform(holes)
    whole = model.transform(NEW)
    np.testing.assert_allclose(np.delete(found, 3, axis=0), np.delete(whole, 3, axis=0), rtol=1e-9)
    alone = model.transform(holes[3:4])
    np.testing.assert_allclose(found[3], alone[0], rtol=1e-12)
    assert (np.abs(found[3]) <= np.abs(whole).max() * 3).all()
    assert model.get_feature_names_out()[0] == f"{type(model).__name__.lower()}0"
    model.save(tmp_path / "features.safetensors")
    np.testing.assert_array_equal(fe.load(tmp_path / "features.safetensors").transform(NEW), whole)
    again = model.fit(np.where(np.isnan(holes), np.nan, holes)).transform(NEW)
    assert np.isfinite(again).all()


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (fe.Nystroem(n_components=9, random_state=0), LandmarkFeatures),
        (fe.RandomFourierFeatures(n_components=9, random_state=0), FourierFeatures),
    ],
)
def test_the_model_maps_one_row(model, kind):
    model.fit(X)
    assert isinstance(model.model_, kind)
    row = model.scaling_.apply(NEW[:1])[0]
    np.testing.assert_allclose(
        jax.jit(lambda m, x: m(x))(model.model_, row), model.transform(NEW[:1])[0], atol=1e-10
    )


def test_what_is_refused():
    with pytest.raises(ValueError, match="'n_components' parameter of Nystroem must be an int"):
        fe.Nystroem(n_components=0).fit(X)
    with pytest.raises(ValueError, match="Linear is no function of x − y"):
        fe.RandomFourierFeatures(k.Linear()).fit(X)
