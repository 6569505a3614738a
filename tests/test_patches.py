"""Networks for noisy images and series: against NumPy, their symmetries, and diffusion models with them."""

import itertools
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import signal, stats
from sklearn.exceptions import ConvergenceWarning

import freeenergy as fe
from freeenergy._core import dense, on_device
from freeenergy.learning import Batch, Denoising, Gradient, Optimiser
from freeenergy.models import Diffusion
from freeenergy.nn import ConvolutionalDenoiser, ConvolutionalNetwork, PatchDenoiser, PatchNetwork
from freeenergy.shell._networks import numbers_inside

KEY = jax.random.key(0)
# an image of two channels, and a series of three features
IMAGE, SERIES = (4, 6, 2), (6, 3)
RECIPES = [
    PatchDenoiser(IMAGE, (2, 3), width=8, depth=2, heads=2),
    PatchDenoiser(SERIES, (2,), width=6, depth=1, heads=3),
    ConvolutionalDenoiser((4, 8, 2), width=3, levels=2),
    ConvolutionalDenoiser(SERIES, (5,), width=4, levels=2),
]


def loud(recipe, dim, told=0):
    """A network whose layers all say something, in double precision."""
    rng = np.random.default_rng(0)
    shapes = eqx.filter_eval_shape(lambda key: recipe.build(dim, told=told, dtype=float, key=key), KEY)
    leaves, tree = jax.tree.flatten(shapes)
    return jax.tree.unflatten(tree, [on_device(0.4 * rng.normal(size=leaf.shape)) for leaf in leaves])


def dim_of(recipe):
    return int(np.prod(recipe.shape))


@eqx.filter_jit
def said(network, rows, log_snrs):
    return jax.vmap(network)(rows, log_snrs)


def rows_of(recipe, n=3):
    rng = np.random.default_rng(1)
    return rng.normal(size=(n, dim_of(recipe))), rng.normal(size=n)


def normal_places(h):
    return (h - h.mean(axis=-1, keepdims=True)) / np.sqrt(h.var(axis=-1, keepdims=True) + 1e-5)


def silu(x):
    return x / (1 + np.exp(-x))


def waves_of(log_snr):
    lengths = 64.0 * (2.0 / 64.0) ** (np.arange(16) / 15)
    angles = 2 * np.pi * log_snr / lengths
    return np.concatenate([np.sin(angles), np.cos(angles)])


def by_hand(network, x, log_snr, cuts):
    """A transformer over patches in plain NumPy, one place, head and pair of places at a time."""
    w = jax.tree.map(np.asarray, network)
    waves, image = waves_of(log_snr), x.reshape(network.shape)
    h = np.stack([image[cut].ravel() @ w.embed for cut in cuts]) + w.position
    size = h.shape[1] // network.heads
    for i in range(len(w.attend)):
        s, r, g, t, u, v = np.split(waves @ w.told[i] + w.told_bias[i], 6)
        asked = (normal_places(h) * (1 + s) + r) @ w.attend[i]
        found = np.zeros_like(h)
        for head, place in itertools.product(range(network.heads), range(len(h))):
            q, k, value = (asked[:, (3 * head + j) * size : (3 * head + j + 1) * size] for j in range(3))
            shares = np.exp([q[place] @ k[j] / np.sqrt(size) for j in range(len(h))])
            found[place, head * size : (head + 1) * size] = shares / shares.sum() @ value
        h = h + g * (found @ w.mix[i])
        inside = silu((normal_places(h) * (1 + t) + u) @ w.wide[i] + w.wide_bias[i])
        h = h + v * (inside @ w.narrow[i])
    s, r = np.split(waves @ w.ending + w.ending_bias, 2)
    patches = (normal_places(h) * (1 + s) + r) @ w.last
    out = np.zeros(network.shape)
    for cut, patch in zip(cuts, patches, strict=True):
        out[cut] = patch.reshape(image[cut].shape)
    return out.ravel()


def test_attention_over_patches_is_what_numpy_says():
    cuts = {
        0: [np.s_[2 * i : 2 * i + 2, 3 * j : 3 * j + 3] for i in range(2) for j in range(2)],
        1: [np.s_[2 * i : 2 * i + 2] for i in range(3)],
    }
    for number, own in cuts.items():
        recipe = RECIPES[number]
        network, (rows, log_snrs) = loud(recipe, dim_of(recipe)), rows_of(recipe)
        assert isinstance(network, PatchNetwork)
        expected = [by_hand(network, x, t, own) for x, t in zip(rows, log_snrs, strict=True)]
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(said(network, rows, log_snrs), expected, rtol=1e-9, atol=1e-9)


def convolved(h, weight, kernel):
    """With SciPy, channel by channel; `h` is a grid of channels."""
    weight = weight.reshape(*kernel, h.shape[-1], -1)
    out = np.zeros((*h.shape[:-1], weight.shape[-1]))
    for a, b in itertools.product(range(h.shape[-1]), range(weight.shape[-1])):
        out[..., b] += signal.correlate(h[..., a], weight[..., a, b], mode="same")
    return out


def u_net_by_hand(network, x, log_snr):
    w, kernel = jax.tree.map(np.asarray, network), network.kernel
    waves, axes = waves_of(log_snr), range(len(kernel))

    def block(own, h):
        s, r = np.split(waves @ own.told + own.told_bias, 2)
        inside = convolved(silu(normal_places(h)), own.inner, kernel)
        return h + convolved(silu(normal_places(inside) * (1 + s) + r), own.outer, kernel)

    def halved(h):
        return np.mean(
            [
                h[tuple(slice(o, None, 2) for o in offsets)]
                for offsets in itertools.product((0, 1), repeat=len(kernel))
            ],
            axis=0,
        )

    h, kept = convolved(x.reshape(*network.shape[: len(kernel)], -1), w.first, kernel), []
    for own, fall in zip(w.down, w.fall, strict=True):
        h = block(own, h)
        kept.append(h)
        h = halved(h) @ fall
    h = block(w.bottom, h)
    for level in range(len(w.up))[::-1]:
        risen = np.kron(h @ w.rise[level], np.ones((*(2 for _ in axes), 1)))
        h = block(w.up[level], kept[level] @ w.keep[level] + risen)
    return (normal_places(h) @ w.last).ravel()


def test_the_u_net_is_what_scipy_says():
    for recipe in RECIPES[2:]:
        network, (rows, log_snrs) = loud(recipe, dim_of(recipe)), rows_of(recipe)
        assert isinstance(network, ConvolutionalNetwork)
        expected = [u_net_by_hand(network, x, t) for x, t in zip(rows, log_snrs, strict=True)]
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(said(network, rows, log_snrs), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: f"{type(r).__name__}{r.shape}")
def test_networks_are_silent_at_first_with_finite_slopes_and_see_far_entries_as_near_ones(recipe):
    dim = dim_of(recipe)
    rows, log_snrs = rows_of(recipe)
    fresh = recipe.build(dim, dtype=float, key=KEY)
    assert not np.any(said(fresh, rows, log_snrs))
    # what is learned first is the last layer
    slopes = jax.jit(jax.grad(lambda n: jnp.sum(jax.vmap(n)(rows, log_snrs) * rows)))(fresh)
    assert np.abs(slopes.last).max() > 0
    network = loud(recipe, dim)
    rows[0, 0], rows[1], rows[2] = 1e300, rows[0], 0.0
    rows[1, 0] = 25.0
    log_snrs[:] = 1.0
    far, same, still = np.asarray(said(network, rows, log_snrs))
    np.testing.assert_array_equal(far, same)
    assert np.abs(far - still).max() > 1e-3
    # slopes are those of finite differences, and there are none of what is far or where all is still
    x, way = rows_of(recipe)[0][:2]

    @jax.jit
    def pushed(x, way):
        def at(x):
            return network(x, jnp.array(0.3))

        return jax.jvp(at, (x,), (way,))[1], (at(x + 1e-6 * way) - at(x - 1e-6 * way)) / 2e-6

    np.testing.assert_allclose(*pushed(x, way), rtol=1e-5, atol=1e-7)
    slope = jax.jit(jax.jacrev(lambda x: jnp.sum(network(x, jnp.array(0.3)))))
    assert slope(rows[0])[0] == 0
    assert np.isfinite(slope(rows[2])).all()


def test_places_are_told_apart_by_their_position_alone():
    network, (rows, log_snrs) = loud(RECIPES[1], 18), rows_of(RECIPES[1])
    order = np.array([2, 0, 1])
    other = eqx.tree_at(lambda n: n.position, network, on_device(np.asarray(network.position)[order]))
    moved = rows.reshape(3, 3, 6)[:, order].reshape(3, 18)
    expected = np.asarray(said(network, rows, log_snrs)).reshape(3, 3, 6)[:, order].reshape(3, 18)
    np.testing.assert_allclose(said(other, moved, log_snrs), expected, rtol=1e-9, atol=1e-12)
    assert np.abs(said(network, moved, log_snrs) - expected).max() > 1e-3


@pytest.mark.parametrize("recipe", RECIPES[1:3], ids=lambda r: type(r).__name__)
def test_what_is_told_of_a_label_moves_what_every_block_is_told(recipe):
    dim, code = dim_of(recipe), np.array([0.7, -1.3])
    network, (rows, log_snrs) = loud(recipe, dim, told=2), rows_of(recipe)

    def parts(n):
        if isinstance(n, PatchNetwork):
            return [n.told, n.ending, n.told_bias, n.ending_bias]
        blocks = [*n.down, n.bottom, *n.up]
        return [block.told for block in blocks] + [block.told_bias for block in blocks]

    # a network that is told nothing, with what the label adds to its biases
    found = [np.asarray(a) for a in parts(network)]
    weights, biases = found[: len(found) // 2], found[len(found) // 2 :]
    moved = [b + code @ w[..., -2:, :] for w, b in zip(weights, biases, strict=True)]
    other = eqx.tree_at(parts, network, [*map(on_device, [w[..., :-2, :] for w in weights] + moved)])
    beside = np.column_stack([rows, np.tile(code, (len(rows), 1))])
    expected = said(other, rows, log_snrs)
    np.testing.assert_allclose(said(network, beside, log_snrs), expected, rtol=1e-9, atol=1e-12)
    assert (
        np.abs(said(network, np.column_stack([rows, -beside[:, dim:]]), log_snrs) - expected).max() > 1e-3
    )


def test_a_u_net_mirrors_what_it_says_if_its_kernels_are_mirrored():
    recipe = RECIPES[2]
    network, (rows, log_snrs) = loud(recipe, 64), rows_of(recipe)

    def mirrored(path, a):
        if getattr(path[-1], "name", None) not in ("first", "inner", "outer"):
            return a
        a = np.asarray(a)
        return on_device(a.reshape(3, 3, -1, a.shape[1])[:, ::-1].reshape(a.shape))

    other = jax.tree_util.tree_map_with_path(mirrored, network)

    def flip(rows):
        return np.asarray(rows).reshape(3, 4, 8, 2)[:, :, ::-1].reshape(3, 64)

    expected = flip(said(network, rows, log_snrs))
    np.testing.assert_allclose(said(other, flip(rows), log_snrs), expected, rtol=1e-9, atol=1e-12)


def test_a_product_mapped_over_events_is_the_same_product():
    rng = np.random.default_rng(0)
    rows, weight, weights = (rng.normal(size=s) for s in ((5, 2, 3, 4), (4, 6), (5, 4, 6)))

    @jax.jit
    def both(rows, weight, weights, way):
        def found(rows, weight):
            return jax.vmap(jax.vmap(lambda a: dense(a, weight)))(rows)

        slopes = jax.grad(lambda r, w: jnp.sum(jnp.sin(found(r, w))), (0, 1))(rows, weight)
        own = jax.vmap(jax.grad(lambda a, w: jnp.sum(jnp.sin(dense(a, w))), (0, 1)), (0, None))
        pushed = jax.vmap(lambda a, b: jax.linearize(lambda a: dense(a, weight), a)[1](b))
        return (
            found(rows, weight),
            slopes,
            own(rows[:, 0], weight),
            pushed(rows[:, 0], way[:, 0]),
            jax.vmap(dense)(rows[:, 0], weights),
            jax.vmap(dense, (None, 0))(rows[0, 0], weights),
            jax.vmap(lambda a: dense(a, weight), 2, 1)(rows[0].transpose(1, 2, 0)),
        )

    found, slopes, own, pushed, each, others, turned = both(rows, weight, weights, rows**2)
    product = rows @ weight
    np.testing.assert_allclose(found, product, rtol=1e-12)
    cosine = np.cos(product)
    np.testing.assert_allclose(slopes[0], cosine @ weight.T, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(slopes[1], np.einsum("abci,abcj->ij", rows, cosine), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(own[0], cosine[:, 0] @ weight.T, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        own[1], np.einsum("aci,acj->aij", rows[:, 0], cosine[:, 0]), rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(pushed, (rows**2)[:, 0] @ weight, rtol=1e-12)
    np.testing.assert_allclose(each, rows[:, 0] @ weights, rtol=1e-10)
    np.testing.assert_allclose(others, rows[0, 0] @ weights, rtol=1e-10)
    np.testing.assert_allclose(turned, product[0].transpose(1, 0, 2), rtol=1e-10)


def test_what_a_network_makes_of_an_event_is_counted_before_it_is_made():
    row, one = jax.ShapeDtypeStruct((4,), float), jax.ShapeDtypeStruct((), float)
    # a product with a weight that is cut out of another costs what comes of it
    weights = jnp.ones((2, 4, 5))
    found = numbers_inside(lambda x, t: jnp.tanh(x @ weights[0]), row, one)
    assert found == (10, 5)
    network = PatchDenoiser((28, 28)).build
    shapes = eqx.filter_eval_shape(lambda key: network(784, key=key), KEY)
    row, one = (jax.ShapeDtypeStruct(s, np.float32) for s in ((784,), ()))
    numbers, widest = numbers_inside(shapes, row, one)
    # the widest are the perceptron's: 49 places of 4 · 64
    assert widest == 49 * 256
    assert 4 * (3 * 49 * 256 + 3 * 4 * 49**2) < numbers < 4 * (20 * 49 * 256)


def test_shapes_that_do_not_fit_are_refused_in_a_sentence():
    for make, message in (
        (lambda: PatchDenoiser(16), r"'shape' of PatchDenoiser must be a tuple of whole numbers. Got 16"),
        (lambda: PatchDenoiser((4, 0)), r"'shape' of PatchDenoiser must be a tuple"),
        (
            lambda: PatchDenoiser((4,), (2, 2)),
            r"'patch' of PatchDenoiser must be a whole number, or one for",
        ),
        (
            lambda: PatchDenoiser((4, 6), 4),
            r"'patch' of PatchDenoiser must divide its shape, \(4, 6\). Got 4",
        ),
        (
            lambda: PatchDenoiser((4, 4), width=9),
            r"'width' of PatchDenoiser must be a multiple of its 4 heads",
        ),
        (lambda: ConvolutionalDenoiser((4, 4), 2), r"'kernel' of ConvolutionalDenoiser must be odd. Got 2"),
        (lambda: ConvolutionalDenoiser((6, 6)), r"'levels' of ConvolutionalDenoiser must halve its shape"),
        (
            lambda: ConvolutionalDenoiser((4, 4)).build(12, key=KEY),
            r"'shape' of ConvolutionalDenoiser must have as many entries as rows have columns, 12. Got",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            make()
    rows = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(
        ValueError, match=r"'shape' of PatchDenoiser must have as many entries .* columns, 3"
    ):
        fe.DiffusionModel(network=PatchDenoiser((2, 2), 1)).fit(rows)
    wide = np.zeros((20, 64 * 64))
    with pytest.raises(ValueError, match=r"The layers of DiffusionModel of 4,096 columns, for the rows"):
        fe.DiffusionModel(network=PatchDenoiser((64, 64), 1), probes=2).fit(wide)


# smooth images: neighbours are correlated
_GRID = np.stack(np.meshgrid(np.arange(4.0), np.arange(4.0)), axis=-1).reshape(-1, 2)
_LAW = stats.multivariate_normal(
    np.zeros(16), np.exp(-0.5 * np.sum((_GRID[:, None] - _GRID) ** 2, axis=2) / 1.5**2) + 0.05 * np.eye(16)
)
SMALL = {"steps": 16, "random_state": 0}
NETWORKS = [
    PatchDenoiser((4, 4), 2, width=8, depth=1, heads=2),
    ConvolutionalDenoiser((4, 4), width=4, levels=2),
]


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS, ids=lambda r: type(r).__name__)
def test_smooth_images_are_learned_completed_drawn_and_saved(network, tmp_path):
    rng = np.random.default_rng(0)
    X, T = _LAW.rvs(120, random_state=rng), _LAW.rvs(40, random_state=rng)
    model = fe.DiffusionModel(network=network, learning_rate=0.01, max_iter=40, **SMALL).fit(X)
    columns = stats.norm.logpdf(T, X.mean(axis=0), X.std(axis=0)).sum(axis=1).mean()
    found, bound = model.evidence(T), model.bound(T, draws=4)
    # nats that are learned of how pixels go together, of those that there are
    assert _LAW.logpdf(T).mean() > found.mean > columns + 1
    assert found.mean + 1 > bound.mean > columns + 1
    holes = T[:10].copy()
    holes[:, 5] = np.nan
    filled = model.impute(holes)
    assert np.isfinite(filled).all()
    assert np.mean((filled[:, 5] - T[:10, 5]) ** 2) < np.mean((X[:, 5].mean() - T[:10, 5]) ** 2)
    draws = model.sample(200, random_state=0)
    beside = [np.corrcoef(rows[:, 0], rows[:, 1])[0, 1] for rows in (draws, X)]
    assert beside[0] > 0.3 * beside[1]
    path = tmp_path / "model"
    model.save(path)
    np.testing.assert_array_equal(fe.load(path).score_samples(T), model.score_samples(T))


@pytest.mark.parametrize(
    "network",
    [NETWORKS[0], pytest.param(NETWORKS[1], marks=pytest.mark.slow)],
    ids=lambda r: type(r).__name__,
)
def test_a_wild_step_ends_with_a_sentence_and_the_last_good_model(network):
    X = _LAW.rvs(120, random_state=np.random.default_rng(0))
    columns = stats.norm.logpdf(X, X.mean(axis=0), X.std(axis=0)).sum(axis=1).mean()
    # a thousand times the usual rate: the best on held-out rows is kept, or what there was before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        wild = fe.DiffusionModel(network=network, learning_rate=2.0, max_iter=4, **SMALL).fit(X)
    assert wild.bound(X[:16], draws=4).mean > columns - 3
    learner = Gradient(Optimiser(optax.sgd, 1e6), Denoising(), batch_size=64)
    with pytest.warns(
        ConvergenceWarning, match=r"DiffusionModel: training left noise harder to see|non-finite"
    ):
        broken = fe.DiffusionModel(network=network, learner=learner, max_iter=2, **SMALL).fit(X)
    assert broken.bound(X[:16], draws=4).mean > columns - 3


def test_noisy_rows_count_the_same_however_they_are_laid_out():
    # one axis for draws and rows: with a batch of one row, times are as evenly spread as with many
    model = Diffusion(lambda x, log_snr: jnp.zeros_like(x), 2)
    rows = jnp.array([[0.5, -1.0], [2.0, 0.3]])

    @jax.jit
    @jax.vmap
    def losses(key):
        apart = [
            Denoising(draws=8)(model, Batch(rows[i : i + 1], jnp.ones(1)), jax.random.fold_in(key, i))
            for i in range(2)
        ]
        return Denoising(draws=8)(model, Batch(rows, jnp.array([0.25, 0.75])), key), jnp.stack(apart)

    together, apart = losses(jax.random.split(KEY, 1000))
    apart = apart @ np.array([0.25, 0.75])
    error = np.hypot(together.std(), apart.std()) / np.sqrt(1000)
    assert abs(together.mean() - apart.mean()) < 4 * error
