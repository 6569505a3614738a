"""Kernels beside scikit-learn's, explicit features, enumeration and finite differences."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as peer
from sklearn.metrics import pairwise

from freeenergy import kernels as k
from freeenergy.inference import free_vector
from freeenergy.kernels._slopes import gram_slope

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(9, 3)), RNG.normal(size=(5, 3))
SCALES = [0.5, 1.5, 3.0]
# ours, and what another library says of all pairs
BESIDE = {
    "linear": (k.Linear(2.0, offset=0.3), lambda x, y: 2 * x @ y.T + 0.3),
    "linear of each column": (k.Linear(SCALES), lambda x, y: (x * SCALES) @ y.T),
    "polynomial": (
        k.Polynomial(3, 0.7, 1.2),
        lambda x, y: pairwise.polynomial_kernel(x, y, degree=3, gamma=0.7, coef0=1.2),
    ),
    "rbf": (k.RBF(SCALES), lambda x, y: peer.RBF(SCALES)(x, y)),
    "laplacian": (k.Laplacian(2.0), lambda x, y: pairwise.laplacian_kernel(x, y, gamma=0.5)),
    "matern 1/2": (k.Matern(0.5, SCALES), lambda x, y: peer.Matern(SCALES, nu=0.5)(x, y)),
    "matern 3/2": (k.Matern(1.5, SCALES), lambda x, y: peer.Matern(SCALES, nu=1.5)(x, y)),
    "matern 5/2": (k.Matern(2.5, SCALES), lambda x, y: peer.Matern(SCALES, nu=2.5)(x, y)),
    "rational quadratic": (
        k.RationalQuadratic(1.3, 0.4),
        lambda x, y: peer.RationalQuadratic(1.3, alpha=0.4)(x, y),
    ),
    # of several columns a product, where scikit-learn has a distance that need not be a kernel
    "periodic": (
        k.Periodic(1.7, 0.8),
        lambda x, y: np.prod(
            [peer.ExpSineSquared(0.8, 1.7)(x[:, [j]], y[:, [j]]) for j in range(3)], axis=0
        ),
    ),
    "box": (k.Box(2.0), lambda x, y: (pairwise.euclidean_distances(x, y) <= 2.0) * 1.0),
    "constant": (k.Constant(2.5), lambda x, y: np.full((len(x), len(y)), 2.5)),
    "sum": (k.RBF() + k.Linear(), lambda x, y: peer.RBF()(x, y) + x @ y.T),
    "product": (k.RBF() * k.Linear(), lambda x, y: peer.RBF()(x, y) * (x @ y.T)),
    "scaled": (2.5 * k.RBF(), lambda x, y: 2.5 * peer.RBF()(x, y)),
    "scaled from the right": (k.RBF() * 2.5, lambda x, y: 2.5 * peer.RBF()(x, y)),
}


@pytest.mark.parametrize("name", BESIDE)
def test_gram_matrices_are_those_of_others(name):
    kernel, other = BESIDE[name]
    np.testing.assert_allclose(kernel.gram(X, Y), other(X, Y), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(kernel.gram(X), other(X, X), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(X), np.diag(other(X, X)), rtol=1e-12)
    assert abs(kernel(X[0], Y[1]) - other(X[:1], Y[1:2])[0, 0]) < 1e-12


def test_the_program_and_the_host_agree_and_both_have_blocks():
    rows = RNG.normal(size=(300, 3))
    kernel = 0.5 * k.Matern(2.5, SCALES) * k.Periodic(2.0) + k.Polynomial(2) * k.Laplacian(1.1)
    kernel = kernel + k.RationalQuadratic() + k.Box() + k.White(0.2) + k.Constant(0.1)
    on_device = jax.jit(lambda x: kernel.gram(x))(jnp.asarray(rows))
    np.testing.assert_allclose(on_device, kernel.gram(rows), rtol=1e-10, atol=1e-12)
    across = jax.jit(lambda x: kernel.gram(x, x[:7]))(jnp.asarray(rows))
    np.testing.assert_allclose(across, kernel.gram(rows, rows[:7]), rtol=1e-7, atol=1e-7)
    each = jax.jit(lambda x: kernel.diagonal(x))(jnp.asarray(rows))
    np.testing.assert_allclose(each, kernel.diagonal(rows), rtol=1e-12)


def test_noise_is_of_a_row_and_itself():
    twins = np.zeros((3, 1))
    np.testing.assert_array_equal(k.White(0.5).gram(twins), 0.5 * np.eye(3))
    np.testing.assert_array_equal(k.White(0.5).gram(twins, twins), np.zeros((3, 3)))


def test_slopes_in_all_parameters_are_finite_differences_also_for_equal_rows():
    rows = np.concatenate([X, X[:2]])
    kernel = 1.5 * k.Matern(0.5, SCALES) + k.RationalQuadratic() * k.Periodic(3.0) + k.Linear(offset=0.5)
    free, weights = free_vector(kernel), RNG.normal(size=(11, 11))
    at = jax.jit(lambda vector: free.restore(vector)[0])
    slope = jax.jit(jax.grad(lambda vector: (weights * at(vector).gram(jnp.asarray(rows))).sum()))
    rises = [
        (weights * (at(free.values + step).gram(rows) - at(free.values - step).gram(rows))).sum() / 2e-6
        for step in 1e-6 * np.eye(len(free.values))
    ]
    np.testing.assert_allclose(slope(free.values), rises, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "kernel",
    [
        k.RBF(1.3),
        1.5 * k.RBF(SCALES) + k.Matern(1.5),
        (0.5 * k.RBF(SCALES)) * (k.Linear(offset=0.5) + k.White(0.3)),
    ],
    ids=["one", "sum", "product"],
)
def test_formulas_of_slopes_are_those_of_the_program(kernel):
    rows, weight = np.concatenate([X, X[:2]]), RNG.normal(size=(11, 11))
    found = gram_slope(kernel, rows, weight, kernel.gram(rows))
    expected = jax.jit(jax.grad(lambda own: (weight * own.gram(jnp.asarray(rows))).sum()))(kernel)
    for ours, theirs in zip(found, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)


def test_far_rows_and_extreme_units_keep_their_digits():
    far = X + 1e8
    np.testing.assert_allclose(k.RBF().gram(far), k.RBF().gram(far - 1e8), rtol=1e-6)
    np.testing.assert_allclose(k.RBF(1e-90).gram(X * 1e-90), k.RBF().gram(X), rtol=1e-12)
    np.testing.assert_array_equal(k.RBF().gram(X * 1e200), np.eye(9))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: k.RBF(0.0), "'lengthscale' parameter of RBF must be positive"),
        (lambda: -1.0 * k.RBF(), "'variance' parameter of Scaled must be positive"),
        (lambda: k.Linear(offset=-1.0), "'offset' parameter of Linear must be non-negative"),
        (lambda: k.Matern(1.0), r"'smoothness' parameter of Matern must be 0.5, 1.5 or 2.5. Got 1.0"),
        (
            lambda: k.Polynomial(0),
            "'degree' parameter of Polynomial must be an int",
        ),
        (lambda: k.RBF([1.0, 2.0]).gram(X), "one for each of the 3 columns. Got 2 instead"),
        (lambda: k.RBF().gram(X[0]), r"two axes. Got the shape \(3,\)"),
        (lambda: k.Spectrum(0), "'length' parameter of Spectrum must be an int"),
        (lambda: k.Subsequences(2, decay=0.0), r"'decay' parameter of Subsequences must be a float"),
        (lambda: k.Spectrum(2).gram([1.0]), "Spectrum takes strings. Got 1.0 instead"),
        (lambda: k.positive_definiteness(X), "as many columns as rows"),
        (lambda: k.positive_definiteness([[np.nan]]), "finite numbers"),
        (lambda: k.Linear().frequencies(3, 2, RNG), "Linear is no function of x − y"),
        (
            lambda: k.RBF().gram(np.zeros((20000, 1))),
            "A Gram matrix of 20,000 × 20,000 rows would",
        ),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# ---------------------------------------------------------------------------------------------
# which functions are kernels
# ---------------------------------------------------------------------------------------------


def test_kernels_have_no_negative_eigenvalue_and_symmetry_is_not_enough():
    for name, (kernel, _) in BESIDE.items():
        found = k.positive_definiteness(kernel.gram(X))
        assert found.holds or name == "box", name
        assert found.asymmetry < 1e-12
    # symmetric, and no kernel
    assert not k.positive_definiteness(-X @ X.T).holds
    # eigenvalues without symmetry are not enough either
    assert not k.positive_definiteness([[2.0, 1.0], [0.0, 2.0]]).holds
    assert isinstance(k.positive_definiteness(np.eye(2)), k.Definiteness)
    assert isinstance(k.RBF() + k.Linear(), k.Sum)
    assert isinstance(k.RBF() * k.Linear(), k.Product)
    assert isinstance(2.0 * k.RBF(), k.Scaled)


def test_finite_rows_cannot_prove_a_kernel():
    box = k.Box(1.0)
    assert k.positive_definiteness(box.gram(np.array([[0.0], [10.0], [20.0]]))).holds
    refuted = k.positive_definiteness(box.gram(np.array([[0.0], [1.0], [2.0]])))
    assert not refuted.holds
    assert abs(refuted.smallest - (1 - np.sqrt(2))) < 1e-12


def test_a_polynomial_needs_its_roots_of_two():
    x = RNG.normal(size=(6, 2))
    root = np.sqrt(2)
    features = np.column_stack([np.ones(6), root * x, x**2, root * x[:, 0] * x[:, 1]])
    np.testing.assert_allclose(k.Polynomial(2).gram(x), features @ features.T, rtol=1e-12)
    without = np.column_stack([np.ones(6), x, x**2, root * x[:, 0] * x[:, 1]])
    inner = x @ x.T
    np.testing.assert_allclose(without @ without.T, 1 + inner + inner**2, rtol=1e-12)


def test_eigenvectors_of_a_gram_matrix_are_features():
    gram = k.RBF(1.3).gram(X)
    values, vectors = np.linalg.eigh(gram)
    features = vectors * np.sqrt(np.maximum(values, 0.0))
    np.testing.assert_allclose(features @ features.T, gram, atol=1e-12)


# ---------------------------------------------------------------------------------------------
# text
# ---------------------------------------------------------------------------------------------

WORDS = ["", "a", "cat", "cart", "abab", "babaab"]


def _subsequences(text, length, decay):
    """Each subsequence with the sum of λ to the room of its occurrences, by enumeration."""
    found = {}
    for places in itertools.combinations(range(len(text)), length):
        word = "".join(text[p] for p in places)
        found[word] = found.get(word, 0.0) + decay ** (places[-1] - places[0] + 1)
    return found


@pytest.mark.parametrize(("length", "decay"), [(1, 1.0), (2, 1.0), (2, 0.5), (3, 0.7)])
def test_subsequences_are_counted(length, decay):
    features = [_subsequences(word, length, decay) for word in WORDS]
    expected = [
        [sum(n * other.get(u, 0.0) for u, n in own.items()) for other in features] for own in features
    ]
    kernel = k.Subsequences(length, decay, normalised=False)
    np.testing.assert_allclose(kernel.gram(WORDS), expected, atol=1e-12)
    np.testing.assert_allclose(kernel.gram(WORDS[:2], WORDS), expected[:2], atol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(WORDS), np.diag(expected), atol=1e-12)


def test_substrings_are_counted():
    def count(word, part):
        return sum(word[i:].startswith(part) for i in range(len(word)))

    parts = ["".join(p) for p in itertools.product("abcrt", repeat=2)]
    features = np.array([[count(word, part) for part in parts] for word in WORDS], float)
    kernel = k.Spectrum(2, normalised=False)
    np.testing.assert_allclose(kernel.gram(WORDS), features @ features.T)
    np.testing.assert_allclose(kernel.gram(WORDS[3:], WORDS), (features @ features.T)[3:])
    np.testing.assert_allclose(kernel.diagonal(WORDS), (features**2).sum(axis=1))


@pytest.mark.parametrize("kernel", [k.Spectrum(2), k.Subsequences(2)])
def test_kernels_of_text_are_kernels_of_length_one(kernel):
    found = k.positive_definiteness(kernel.gram(WORDS))
    assert found.holds
    np.testing.assert_allclose(kernel.diagonal(WORDS), [0, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(np.diag(kernel.gram(WORDS)), kernel.diagonal(WORDS), atol=1e-12)
    # kernels of text combine as others do
    assert k.positive_definiteness((2.0 * kernel + kernel * kernel).gram(WORDS)).holds


def test_a_similarity_of_edits_is_no_kernel():
    words = ["".join(p) for n in range(4) for p in itertools.product("ab", repeat=n)]

    def edits(s, t):
        row = list(range(len(t) + 1))
        for i, a in enumerate(s, 1):
            last, row = row, [i]
            for j, b in enumerate(t, 1):
                row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (a != b)))
        return row[-1]

    found = k.positive_definiteness(np.exp([[-edits(s, t) / 2 for t in words] for s in words]))
    assert not found.holds
    assert round(found.smallest, 3) == -0.094


# ---------------------------------------------------------------------------------------------
# frequencies
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel",
    [
        k.RBF(SCALES),
        k.Laplacian(SCALES),
        k.Matern(0.5, 1.4),
        k.Matern(2.5, SCALES),
        k.RationalQuadratic(1.4, 0.6),
        3.0 * k.RBF(2.0) + 1.5 * k.Laplacian(0.7),
        k.RBF(2.0) * (0.5 * k.Matern(1.5)),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_cosines_of_random_frequencies_average_to_the_kernel(kernel):
    draws = kernel.frequencies(20_000, 3, np.random.default_rng(1))
    gap = (X[:, None] - Y[None]).reshape(-1, 3)
    waves = np.cos(gap @ draws.T)
    expected = kernel.gram(X, Y).ravel() / float(kernel.diagonal(X)[0])
    error = waves.std(axis=1) / np.sqrt(draws.shape[0])
    assert (np.abs(waves.mean(axis=1) - expected) / error).max() < 4.5


@pytest.mark.parametrize("name", [*BESIDE, "noise"])
def test_other_units_of_columns_and_of_values(name):
    kernel = k.White(0.7) if name == "noise" else BESIDE[name][0]
    units = np.full(3, 4.0) if name == "box" else np.array([0.25, 20.0, 3.0])
    other = kernel.in_units(units)
    np.testing.assert_allclose(other.gram(X * units, Y * units), kernel.gram(X, Y), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(other.diagonal(X * units), kernel.diagonal(X), rtol=1e-12)
    np.testing.assert_allclose(kernel.times(4.0).gram(X), 4.0 * kernel.gram(X), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(kernel.times(4.0).diagonal(X), 4.0 * kernel.diagonal(X), rtol=1e-12)


def test_what_has_no_form_in_other_units():
    assert k.Box(1.0).in_units(np.array([1.0, 2.0])) is None
    assert (k.RBF() + 2.0 * k.Box(1.0)).in_units(np.array([1.0, 2.0])) is None
    assert k.Spectrum(2).in_units(np.ones(1)) is None
