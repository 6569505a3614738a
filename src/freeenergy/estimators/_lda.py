"""Topic models as estimators."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import sparse
from scipy.special import gammaln, xlogy
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .._core import AbstractAlgorithm, Data, Evidence, Kind, bucket, map_rows, row_hashes
from ..learning import EM, AllRows, CollapsedGibbs, fit
from ..models import LatentDirichletAllocation as LatentDirichletAllocationModel
from ..models._lda import Document
from ._base import Shell, key_data, retold
from ._importance import importance_evidence, rows_at_once
from ._networks import seeded
from ._validation import (
    check_instance,
    check_int,
    check_real,
    check_weight,
    random_key,
    refuse_columns,
)

# with fewer documents than this cores would wait for each other
_WORTH_SPREADING = 512
# below this a negative binomial distribution is a Poisson distribution to rounding
_LEAST_EXCESS = 1e-12
_DOCUMENTS_AT_ONCE = 64
# draws of θ to fill in missing counts
_CANDIDATES = 500
# of the shares of columns, where counts are missing
_SHARE_STEPS = 50


def _places(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """The document of each entry, and its place in it."""
    lengths = np.diff(X.indptr)
    row = np.repeat(np.arange(X.shape[0]), lengths)
    return row, np.arange(len(row)) - np.repeat(X.indptr[:-1], lengths)


def _ragged(X: Any, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Words and counts of each document, padded to `width` with counts of zero."""
    row, place = _places(X)
    words = np.zeros((X.shape[0], width), np.int32)
    counts = np.zeros((X.shape[0], width))
    words[row, place] = X.indices
    counts[row, place] = X.data
    return words, counts


def _document_hashes(X: Any) -> np.ndarray:
    """A 64-bit number for each document that depends on its words and counts alone."""
    entries = row_hashes(np.stack([X.indices.astype(float), X.data], axis=1))
    # sums that wrap around do not depend on the order of the words
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries, dtype=np.uint64)])
    return sums[X.indptr[1:]] - sums[X.indptr[:-1]]


def _document_seeds(X: Any) -> np.ndarray:
    """A 32-bit seed for each document, to fold into a key."""
    return (_document_hashes(X) >> np.uint64(32)).astype(np.uint32)


def _canonical(X: Any, weight: np.ndarray | None) -> tuple[Any, np.ndarray]:
    """The distinct documents with summed weights, in an order of their own, the shortest first."""
    weight = np.ones(X.shape[0]) if weight is None else weight
    used = np.flatnonzero(weight > 0)
    hashes = _document_hashes(X)[used]
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    merged = np.bincount(which.ravel(), weights=weight[used])
    # documents of one size are worked on together
    order = np.argsort(np.diff(X.indptr)[used[first]], kind="stable")
    return X[used[first[order]]], merged[order]


def _start(X: Any, weight: np.ndarray, topics: int, key: Array) -> Array:
    """Counts for each topic: the noisy whole, a word having one on average, and a random document."""
    race = np.log(weight) + np.asarray(jax.random.gumbel(key, (topics, len(weight))))
    chosen = X[race.argmax(axis=1)].toarray()
    whole = weight @ X
    share = np.asarray(whole).ravel() / max(whole.sum(), 1.0)
    noise = np.asarray(jax.random.gamma(key, 100.0, chosen.shape)) / 100
    length = np.maximum(chosen.sum(axis=1, keepdims=True), 1.0)
    return jnp.asarray(X.shape[1] * (share * noise + 0.25 * chosen / length))


def _width(distinct: int) -> int:
    """A few sizes for the number of distinct words of a document, a factor of two apart."""
    return max(16, 1 << (int(distinct) - 1).bit_length()) if distinct > 1 else 16


def _incomplete(X: Any) -> np.ndarray:
    """Which documents have missing counts."""
    return np.bincount(_places(X)[0], np.isnan(X.data), minlength=X.shape[0]) > 0


def _observed(X: Any) -> Any:
    """`X` with zeros for what is missing."""
    return sparse.csr_matrix((np.nan_to_num(X.data), X.indices, X.indptr), X.shape)


def _groups(X: Any, holes: np.ndarray) -> Iterator[tuple[np.ndarray, int, bool]]:
    """Documents of similar size, with or without `holes`: their numbers, a width for all, and which."""
    widths = np.array([_width(n) for n in np.diff(X.indptr)], int)
    for width, hole in sorted(set(zip(widths.tolist(), holes.tolist(), strict=True))):
        yield np.flatnonzero((widths == width) & (holes == hole)), width, hole


def _over_documents(function: Any, X: Any, model: Any, block: int, *args: Any, each: Any = None) -> Any:
    """`function(document, model, whether counts are missing, …)` for each row, with `each` of its own."""
    outs, order = [], []
    for chosen, width, hole in _groups(X, _incomplete(X)):
        documents = _ragged(X[chosen], width)
        rows = documents if each is None else (documents, each[chosen])
        outs.append(map_rows(function, rows, model, hole, *args, block=block))
        order.append(chosen)
    back = np.argsort(np.concatenate(order))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[back], *outs)


def _concentration(document: Document, model: LatentDirichletAllocationModel, incomplete: bool) -> Array:
    return model.posterior_concentration(document, incomplete=incomplete)


def _bound(document: Document, model: LatentDirichletAllocationModel, incomplete: bool) -> Array:
    return model.bound(document, incomplete=incomplete)


def _importance(
    pair: tuple[Document, Array],
    model: LatentDirichletAllocationModel,
    incomplete: bool,
    samples: int,
    seed: Array,
) -> tuple[Array, Array]:
    document, row_seed = pair
    return importance_evidence(
        model, model.recognition(incomplete=incomplete), document, samples, seed, row_seed
    )


def _complete_mean(
    pair: tuple[Document, Array], model: LatentDirichletAllocationModel, samples: int, seed: Array
) -> Array:
    document, row_seed = pair
    return model.complete_mean(document, samples=samples, key=seeded(seed, row_seed))


def _complete_sample(
    pair: tuple[Document, Array], model: LatentDirichletAllocationModel, samples: int
) -> Array:
    document, key = pair
    return model.complete_sample(document, samples=samples, key=jax.random.wrap_key_data(key))


def _draw(pair: tuple[Array, Array], model: LatentDirichletAllocationModel) -> Array:
    length, key = pair
    return model.sample(length, key=jax.random.wrap_key_data(key))[1]


def _left_to_right(
    document: tuple[Array, Array, Array], model: LatentDirichletAllocationModel, particles: int
) -> Array:
    words, real, key = document
    return model.left_to_right(words, real, particles, key=jax.random.wrap_key_data(key))


def _lengths(X: Any) -> np.ndarray:
    return np.asarray(X.sum(axis=1)).ravel()


def _log_orders(X: Any) -> np.ndarray:
    """log of the number of orders in which the words of each document could have come."""
    ways = sparse.csr_matrix((gammaln(X.data + 1), X.indices, X.indptr), X.shape).sum(axis=1)
    return gammaln(_lengths(X) + 1) - np.asarray(ways).ravel()


class _Corpus:
    """Names a matrix of counts, for a checkpoint."""

    def __init__(self, X: Any) -> None:
        entries = np.stack([X.indices.astype(float), X.data], axis=1)
        self._name = f"{X.shape} {np.bitwise_xor.reduce(row_hashes(entries), initial=np.uint64(0)):016x}"

    def identity(self) -> str:
        return self._name


def _observed_share(X: Any, weight: np.ndarray) -> np.ndarray:
    """Which part of the words of each document one would expect among the columns that were observed.

    The shares of the columns are those of a Poisson distribution for each entry whose mean is a number
    for the document times a number for the column, iterated to maximum likelihood.
    """
    holes = sparse.csr_matrix((np.isnan(X.data).astype(float), X.indices, X.indptr), X.shape)
    counts = _observed(X)
    lengths, columns = _lengths(counts), weight @ counts
    share = np.full(X.shape[1], 1 / X.shape[1])
    seen = np.ones(X.shape[0])
    for _ in range(_SHARE_STEPS if holes.nnz else 0):
        seen = np.clip(1 - holes @ share, np.finfo(float).eps, 1.0)
        rates = weight * lengths / seen
        exposure = rates.sum() - rates @ holes
        share = np.divide(columns, exposure, out=np.zeros_like(columns), where=exposure > 0)
        share /= max(share.sum(), np.finfo(float).tiny)
    return seen


class LengthLaw(NamedTuple):
    """A negative binomial distribution: a Poisson whose mean varies with variance `excess` · mean².

    Attributes:
        mean: of the lengths.
        excess: zero for a Poisson distribution.

    >>> law = LengthLaw(2.0, 0.5)
    >>> round(float(np.exp(law.log_prob(np.arange(200))).sum()), 6)
    1.0
    """

    mean: float
    excess: float

    @classmethod
    def of(cls, lengths: np.ndarray, weight: np.ndarray, seen: np.ndarray | float = 1.0) -> LengthLaw:
        """The law with the mean and the variance of `lengths`; a Poisson where they vary less.

        Where only a part of each document was `seen`, `lengths` are those of the parts.
        """
        # where there is no word at all, half a word
        mean = max(float(weight @ lengths), 0.5) / float(np.sum(weight * seen))
        expected = mean * np.broadcast_to(seen, lengths.shape)
        excess = weight @ ((lengths - expected) ** 2 - expected) / (weight @ expected**2)
        return cls(mean, max(float(excess), 0.0))

    def log_prob(self, length: np.ndarray) -> np.ndarray:
        """log p of each length."""
        if self.excess < _LEAST_EXCESS:
            return xlogy(length, self.mean) - self.mean - gammaln(length + 1)
        size, share = 1 / self.excess, 1 / (1 + self.excess * self.mean)
        ways = gammaln(length + size) - gammaln(size) - gammaln(length + 1)
        return ways + size * np.log(share) + length * np.log1p(-share)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """`n` lengths."""
        if self.excess < _LEAST_EXCESS:
            return rng.poisson(self.mean, n)
        return rng.poisson(self.mean * self.excess * rng.gamma(1 / self.excess, size=n))


class LatentDirichletAllocation(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, Shell):
    """Topics of documents: each document a mixture of topics, each topic a distribution over words.

    φ_k ~ Dirichlet(η); for each document θ ~ Dirichlet(α); for each of its words z ~ θ, w ~ φ_z.

    Rows of `X` are documents, columns words, entries counts: a SciPy sparse matrix or an array.  What
    is fitted are the topics; `components_` are their posterior means, and everything about new documents
    (`transform`, `evidence`, `perplexity`, `sample`) is the model with topics at those means.
    `evidence` is a lower bound on log p(counts); the bound is the one that variational inference raises,
    converged for each document.  How long a document is does not depend on its topics: `length_law_`, a
    negative binomial of the mean and variance of the lengths that were fitted.  NaN is a count that was
    not observed: it is summed out, and `impute` has its mean given the others.  The objective in
    `history_` is, for variational learning, minus the bound on the evidence of the training documents,
    per document, and for Gibbs sampling −log p(words, topics) per word.

    Args:
        n_topics: how many topics.
        alpha: α, the concentration of topics in a document; 1 / n_topics by default.
        eta: η, the concentration of words in a topic; 1 / n_topics by default.
        learner: `EM()` is batch variational Bayes (the default), `EM(sweep=Stepwise(batch_size=…))`
            online, `CollapsedGibbs()` samples and needs whole counts, all of them observed.
        importance_samples: with a number, `evidence` is the log of a mean of so many importance weights
            instead, with θ drawn from the q of the bound: closer, and with a standard error.
        max_iter, tol: the most passes over the documents, and the improvement in nats per document
            below which variational learning stops.
        random_state: seed.
        verbose: 1 shows progress.
        checkpoint: a file that keeps a long fit.

    >>> import numpy as np
    >>> X = np.array([[4, 3, 0, 0], [5, 2, 0, 0], [0, 0, 6, 2], [0, 0, 3, 3]])
    >>> shares = LatentDirichletAllocation(2, random_state=0).fit_transform(X)
    >>> bool((shares.argmax(axis=1)[:2] != shares.argmax(axis=1)[2:]).all())
    True
    """

    def __init__(
        self,
        n_topics: int = 10,
        *,
        alpha: float | None = None,
        eta: float | None = None,
        learner: AbstractAlgorithm | None = None,
        importance_samples: int | None = None,
        max_iter: int = 100,
        tol: float = 1e-2,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.n_topics = n_topics
        self.alpha = alpha
        self.eta = eta
        self.learner = learner
        self.importance_samples = importance_samples
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    @property
    def _must_converge(self) -> bool:
        return not isinstance(self.learner, CollapsedGibbs)

    @property
    def _n_features_out(self) -> int:
        return self.n_topics

    def _check_parameters(self) -> None:
        check_int(self, "n_topics")
        check_real(self, "alpha", closed=False, optional=True)
        check_real(self, "eta", closed=False, optional=True)
        check_instance(self, "learner", EM, CollapsedGibbs, optional=True)
        check_int(self, "importance_samples", 2, optional=True)
        check_int(self, "max_iter")
        check_real(self, "tol")

    def _counts(self, X: Any, *, reset: bool) -> Any:
        X = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=np.float64,
            ensure_all_finite="allow-nan",
        )
        X = sparse.csr_matrix(X, copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        least = np.nanmin(X.data) if np.isfinite(X.data).any() else 0.0
        if least < 0:
            raise ValueError(
                "Negative values in data passed to LatentDirichletAllocation: X must hold counts of words. "
                f"Got {least:g}."
            )
        return X

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learns the topics.

        Args:
            X: counts, a row per document; sparse or dense.  NaN means not observed.
            y: ignored.
            sample_weight: a non-negative number per document; two counts as two documents.
        """
        self._check_parameters()
        X = self._counts(X, reset=True)
        X, weight = _canonical(X, check_weight(X, sample_weight))
        holes = np.bincount(X.indices, np.isnan(X.data), minlength=X.shape[1])
        refuse_columns(holes == X.shape[0], getattr(self, "feature_names_in_", None))
        key = random_key(self.random_state)
        self.seed_ = np.asarray(jax.random.bits(key, dtype="uint32"))
        start_key, fit_key = jax.random.split(key)
        prior = 1 / self.n_topics
        known = _observed(X)
        self.length_law_ = LengthLaw.of(_lengths(known), weight, _observed_share(X, weight))
        model = LatentDirichletAllocationModel(
            jnp.full(self.n_topics, float(self.alpha or prior)),
            jnp.asarray(float(self.eta or prior)),
            _start(known, weight, self.n_topics, start_key),
            mean_length=jnp.asarray(self.length_law_.mean),
            excess=jnp.asarray(self.length_law_.excess),
        )
        learner = EM(tol=self.tol) if self.learner is None else self.learner
        if isinstance(learner, CollapsedGibbs):
            data = self._words(X, weight)
        elif isinstance(learner, EM) and isinstance(learner.sweep, AllRows):
            data = self._documents_for_all_cores(X, weight)
        else:
            data = self._documents(X, weight)
        # variational learning knows of words in their order, given how many
        told = not isinstance(learner, CollapsedGibbs)
        rest = float(np.average(self._log_rest(X), weights=weight)) if told else 0.0
        result = fit(
            model,
            learner,
            data,
            key=fit_key,
            max_iter=self.max_iter,
            progress=self._progress(offset=rest),
            checkpoint=self._checkpoint(_Corpus(X)),
        )
        self._keep(retold(dataclasses.replace(result, state=None), offset=rest))
        return self

    def _discrete_columns(self, n_features: int) -> np.ndarray:
        return np.ones(n_features, bool)

    @staticmethod
    def _documents(X: Any, weight: np.ndarray) -> Data:
        width = bucket(int(np.diff(X.indptr).max(initial=1)))
        return Data.of(_ragged(X, width), weight)

    def _documents_for_all_cores(self, X: Any, weight: np.ndarray) -> Data:
        # each core gets documents of every size
        cores = jax.device_count()
        order = np.concatenate([np.arange(core, len(weight), cores) for core in range(cores)])
        return self._documents(X[order], weight[order]).spread(least=_WORTH_SPREADING)

    @staticmethod
    def _words(X: Any, weight: np.ndarray) -> Data:
        # NaN is no whole number either
        if (weight != np.rint(weight)).any() or (X.data != np.rint(X.data)).any() or not X.nnz:
            raise ValueError(
                "CollapsedGibbs moves words one by one: X and 'sample_weight' must hold whole numbers, "
                "all of them observed, and X must not be all zero. Use EM() instead."
            )
        X = X[np.repeat(np.arange(len(weight)), weight.astype(int))]
        coo = X.tocoo()
        times = coo.data.astype(int)
        words = Data.of(
            (np.repeat(coo.col, times).astype(np.int32), np.repeat(coo.row, times).astype(np.int32))
        )
        documents = jnp.zeros(bucket(X.shape[0]))
        return Data((*words.x, documents), words.weight, words.rows, False)

    def _validated(self, X: Any) -> Any:
        check_is_fitted(self, "model_")
        return self._counts(X, reset=False)

    def transform(self, X: Any) -> np.ndarray:
        """The expected shares of the topics in each document."""
        gamma = _over_documents(_concentration, self._validated(X), self.model_, _DOCUMENTS_AT_ONCE)
        return gamma / gamma.sum(axis=1, keepdims=True)

    def evidence(self, X: Any) -> Evidence:
        """A lower bound on log p(counts) of each document, missing counts summed out."""
        X = self._validated(X)
        samples = self.importance_samples
        if samples is None:
            nats = _over_documents(_bound, X, self.model_, _DOCUMENTS_AT_ONCE)
            stderr = np.zeros(len(nats))
        else:
            nats, stderr = _over_documents(
                _importance,
                X,
                self.model_,
                rows_at_once(samples),
                samples,
                self.seed_,
                each=_document_seeds(X),
            )
        return Evidence(nats + self._log_rest(X), stderr, Kind.LOWER)

    def _log_rest(self, X: Any) -> np.ndarray:
        """What log p(counts) has more than log p(words in order | how many); missing counts as zero."""
        X = _observed(X)
        return _log_orders(X) + self.length_law_.log_prob(_lengths(X))

    def left_to_right(self, X: Any, n_particles: int = 20, random_state: Any = None) -> Evidence:
        """log p(counts) of each document by sampling: closer than `evidence`, and slower.

        The mean of `n_particles` unbiased estimates of p.  Its log is on average too low, by about half
        the squared standard error, which is given; so it is a lower bound on average.  The work grows
        with the square of the number of words of a document.

        Args:
            X: whole counts, a row per document.
            n_particles: how many estimates, two or more.
            random_state: seed.
        """
        X = self._validated(X)
        if (X.data != np.rint(X.data)).any():
            raise ValueError(
                "The X of LatentDirichletAllocation.left_to_right must hold whole numbers, since words are "
                f"taken up one by one. Got {X.data[X.data != np.rint(X.data)][0]:g}."
            )
        if not isinstance(n_particles, numbers.Integral) or n_particles < 2:
            raise ValueError(
                "The 'n_particles' of LatentDirichletAllocation.left_to_right must be an int in the range "
                f"[2, inf). Got {n_particles!r} instead."
            )
        lengths = _lengths(X).astype(int)
        widths = np.array([bucket(int(n)) for n in lengths])
        keys = key_data(random_key(random_state), len(lengths))
        logs = np.empty((len(lengths), n_particles))
        for width in np.unique(widths):
            chosen = np.flatnonzero(widths == width)
            part = X[chosen]
            real = np.arange(width) < lengths[chosen, None]
            words = np.zeros(real.shape, np.int32)
            words[real] = np.repeat(part.indices, part.data.astype(int))
            logs[chosen] = map_rows(
                _left_to_right, (words, real, keys[chosen]), self.model_, int(n_particles), block=32
            )
        top = logs.max(axis=1, keepdims=True)
        mass = np.exp(logs - top)
        mean = mass.mean(axis=1)
        stderr = mass.std(axis=1, ddof=1) / (mean * np.sqrt(n_particles))
        return Evidence(np.log(mean) + top[:, 0] + self._log_rest(X), stderr, Kind.LOWER)

    def score_samples(self, X: Any) -> np.ndarray:
        """A lower bound on log p(counts) of each document, in nats."""
        return self.evidence(X).nats

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`."""
        return self.evidence(X).mean

    def perplexity(self, X: Any) -> float:
        """exp of minus the bound on log p(words in order), per word: not below the true perplexity."""
        X = self._validated(X)
        if np.isnan(X.data).any():
            raise ValueError(
                "LatentDirichletAllocation.perplexity takes no NaN: it is about whole documents. "
                "Use 'evidence' instead."
            )
        bound = _over_documents(_bound, X, self.model_, _DOCUMENTS_AT_ONCE)
        return float(np.exp(-bound.sum() / X.sum()))

    def sample(
        self, n: int = 1, random_state: Any = None, *, length: Any = None, given: Any = None
    ) -> np.ndarray:
        """Counts of `n` documents of `length` words (a number, or one for each; by default drawn too).

        With `given`, documents with NaN, the missing counts are drawn given the others, `n` times for each
        document: the result has shape (n, documents, words), or (documents, words) when n is 1.
        """
        check_is_fitted(self, "model_")
        key = random_key(random_state)
        if given is not None:
            if length is not None:
                raise ValueError("LatentDirichletAllocation.sample takes 'length' or 'given', not both.")
            X = self._validated(given)
            draws: Any = sparse.vstack([X] * int(n), format="csr")
            keys = key_data(key, draws.shape[0])
            filled = self._filled(_complete_sample, draws, keys).toarray()
            return filled if n == 1 else filled.reshape(int(n), *X.shape)
        if length is None:
            length = self.length_law_.sample(
                int(n), np.random.default_rng(np.asarray(jax.random.key_data(key)))
            )
        lengths = np.broadcast_to(np.asarray(length, float), (int(n),))
        return map_rows(_draw, (lengths, key_data(key, int(n))), self.model_, block=256)

    def impute(self, X: Any) -> Any:
        """`X` with each missing count replaced by its mean given the others; sparse if `X` is."""
        X_ = self._validated(X)
        filled = self._filled(_complete_mean, X_, _document_seeds(X_), self.seed_)
        return filled if sparse.issparse(X) else filled.toarray()

    def _filled(self, function: Any, X: Any, each: np.ndarray, *args: Any) -> Any:
        """`X` with `function` of each document that has missing counts, and of `each`, in their place."""
        row, place = _places(X)
        samples = self.importance_samples or _CANDIDATES
        for chosen, width, hole in _groups(X, _incomplete(X)):
            if not hole:
                continue
            rows = _ragged(X[chosen], width), each[chosen]
            counts = map_rows(function, rows, self.model_, samples, *args, block=rows_at_once(samples))
            numbers = np.zeros(X.shape[0], int)
            numbers[chosen] = np.arange(len(chosen))
            here = np.isnan(X.data) & np.isin(row, chosen)
            X.data[here] = counts[numbers[row[here]], place[here]]
        return X

    @property
    def components_(self) -> np.ndarray:
        """The probability of each word in each topic, (n_topics, words)."""
        return np.asarray(self.model_.topics())
