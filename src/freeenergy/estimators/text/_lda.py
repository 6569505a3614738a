"""Topic models as estimators."""

from __future__ import annotations

import dataclasses
import numbers
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ..._core import (
    AbstractAlgorithm,
    Data,
    Evidence,
    Fit,
    Kind,
    Simplex,
    bucket,
    generator,
    map_rows,
    on_device,
    split_key,
    split_key_data,
)
from ...learning import EM, AllRows, CollapsedGibbs
from ...models import LatentDirichletAllocation as LatentDirichletAllocationModel
from ...shell import (
    ColumnRoles,
    Completes,
    Corpus,
    Documents,
    Samples,
    Scores,
    Shell,
    Transforms,
    check_count,
    check_instance,
    check_int,
    check_numbers,
    check_real,
    with_history,
)
from ...shell._answers import bound_of, keyed_answers, seeded_answers
from ...shell._base import checked
from ...shell._completion import AbstractHiddenCause
from ...shell._documents import ragged
from ...shell._validation import random_key
from ._documents import LengthLaw, lengths_of, log_orders, observed, observed_share

# with fewer documents than this cores would wait for each other
_WORTH_SPREADING = 512
# the least padded number of words of a document
_FEWEST_WORDS = 16
# draws of θ to fill in missing counts
_CANDIDATES = 500


def _start(X: Any, weight: np.ndarray, topics: int, key: Array) -> Array:
    """Counts for each topic: the noisy whole, a word having one on average, and a document of its own."""
    rng = generator(key)
    length = np.maximum(lengths_of(X), 1.0)
    shares = sparse.csr_matrix(X.multiply(1 / length[:, None]))
    squares = lengths_of(shares.multiply(shares))
    mass, nearest = weight, np.full(len(weight), np.inf)
    chosen = np.empty((topics, X.shape[1]))
    for k in range(topics):
        # drawn by the squared distance to those before, as centres of k-means++ are
        row = rng.choice(len(weight), p=mass / mass.sum())
        chosen[k] = shares[row].toarray()[0]
        nearest = np.minimum(nearest, squares - 2 * shares @ chosen[k] + squares[row])
        mass = weight * np.maximum(nearest, 0.0)
        mass = mass if mass.any() else weight
    whole = weight @ X
    share = np.asarray(whole).ravel() / max(whole.sum(), 1.0)
    noise = rng.gamma(100.0, size=chosen.shape) / 100
    return on_device(X.shape[1] * (share * noise + 0.25 * chosen))


def _log_rest(X: Any, law: LengthLaw) -> np.ndarray:
    """What log p(counts) has more than log p(words in order | how many); missing counts as zero."""
    X = observed(X)
    return log_orders(X) + law.log_prob(lengths_of(X))


def _left_to_right(
    document: tuple[Array, Array, Array], model: LatentDirichletAllocationModel, particles: int
) -> Array:
    words, real, key = document
    return model.left_to_right(words, real, particles, key=jax.random.wrap_key_data(key))


class DocumentCause(AbstractHiddenCause):
    """The shares of the topics of a document, behind its missing counts.

    Attributes:
        model: with its topics at their means.
        document: words and counts, with NaN.
        log_rest: what log p(counts) has more than log p(words in order | how many).
        n_words: of the vocabulary.
    """

    model: LatentDirichletAllocationModel
    document: tuple[Array, Array]
    log_rest: Array
    n_words: int = eqx.field(static=True)

    def space(self) -> Simplex:
        return self.model.latent(self.document)

    def energy(self, z: Array) -> Array:
        return self.model.energy(self.document, z) - self.log_rest

    def complete(self, z: Array, *, key: Array) -> Array:
        words, counts = self.document
        filled = self.model.complete_given(self.document, z, key=key)
        return jnp.zeros(self.n_words, counts.dtype).at[words].set(filled)


class LatentDirichletAllocation(Transforms, Scores, Samples, Completes, Shell):
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

    Attributes:
        components_: the probability of each word in each topic, (n_topics, words).
        length_law_: how long documents are.
        model_: the fitted model.
        history_, n_iter_, converged_, …: as everywhere.

    >>> import numpy as np
    >>> X = np.array([[4, 3, 0, 0], [5, 2, 0, 0], [0, 0, 6, 2], [0, 0, 3, 3]])
    >>> shares = LatentDirichletAllocation(2, random_state=0).fit_transform(X)
    >>> bool((shares.argmax(axis=1)[:2] != shares.argmax(axis=1)[2:]).all())
    True
    """

    intake = Documents
    n_features_in_: int

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

    def _listed(self) -> dict[str, np.ndarray]:
        return {"components": self.components_}

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
        check_instance(self, "learner", EM, CollapsedGibbs, optional=True)
        super()._check_parameters()
        check_int(self, "n_topics")
        check_real(self, "alpha", closed=False, optional=True)
        check_real(self, "eta", closed=False, optional=True)
        check_int(self, "importance_samples", 2, optional=True)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learns the topics.

        Args:
            X: counts, a row per document; sparse or dense.  NaN means not observed.
            y: ignored.
            sample_weight: a non-negative number per document; two counts as two documents.
        """
        self._fit(X, sample_weight=sample_weight)
        return self

    def _learn(self, corpus: Corpus, key: Array) -> Fit:
        X, weight = corpus.counts, corpus.weight
        start_key, fit_key = split_key(key)
        prior = 1 / self.n_topics
        known = observed(X)
        law = LengthLaw.of(lengths_of(known), weight, observed_share(X, weight))
        model = LatentDirichletAllocationModel(
            on_device(np.full(self.n_topics, float(self.alpha or prior))),
            on_device(float(self.eta or prior)),
            _start(known, weight, self.n_topics, start_key),
            mean_length=on_device(law.mean),
            excess=on_device(law.excess),
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
        rest = float(np.average(_log_rest(X, law), weights=weight)) if told else 0.0
        result = self._run(model, learner, data, corpus, fit_key, offset=rest)
        return with_history(dataclasses.replace(result, state=None), offset=rest)

    def column_roles(self, n_features: int) -> ColumnRoles:
        return ColumnRoles.counts(n_features)

    @staticmethod
    def _documents(X: Any, weight: np.ndarray) -> Data:
        width = bucket(int(np.diff(X.indptr).max(initial=1)), _FEWEST_WORDS)
        return Data.of(ragged(X, width), weight)

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
        documents = on_device(np.zeros(bucket(X.shape[0])))
        return Data((*words.x, documents), words.weight, words.rows, False)

    def _read(self, X: Any) -> Documents:
        return self.intake.reading(self, X)

    def _completion(self, x: np.ndarray) -> DocumentCause:
        counts = self._read(x[None]).counts
        document = on_device(counts.indices), on_device(counts.data)
        rest = on_device(_log_rest(counts, self.length_law_)[0])
        return DocumentCause(self.model_, document, rest, len(x))

    def transform(self, X: Any) -> np.ndarray:
        """The expected shares of the topics in each document."""
        gamma = self._read(X).each(LatentDirichletAllocationModel.variational_concentration)
        return check_numbers(self, "transform", gamma / gamma.sum(axis=1, keepdims=True))

    def evidence(self, X: Any) -> Evidence:
        """A lower bound on log p(counts) of each document, missing counts summed out."""
        taken, samples = self._read(X), self.importance_samples
        rest = _log_rest(taken.counts, self.length_law_)
        if samples is None:
            nats = taken.each(LatentDirichletAllocationModel.variational_bound)
            return checked(self, Evidence(nats + rest, np.zeros(len(nats)), Kind.LOWER))
        found = taken.each(LatentDirichletAllocationModel.evidence, samples=samples)
        bound = bound_of(found, np.ones(len(rest), bool))
        return checked(self, dataclasses.replace(bound, nats=bound.nats + rest))

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
        X = self._read(X).counts
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
        lengths = lengths_of(X).astype(int)
        widths = np.array([bucket(int(n), _FEWEST_WORDS) for n in lengths])
        keys = split_key_data(random_key(random_state), len(lengths))
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
        return Evidence(np.log(mean) + top[:, 0] + _log_rest(X, self.length_law_), stderr, Kind.LOWER)

    def score_samples(self, X: Any) -> np.ndarray:
        """A lower bound on log p(counts) of each document, in nats."""
        return self.evidence(X).nats

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`."""
        return self.evidence(X).mean

    def perplexity(self, X: Any) -> float:
        """exp of minus the bound on log p(words in order), per word: not below the true perplexity."""
        taken = self._read(X)
        if np.isnan(taken.counts.data).any():
            raise ValueError(
                "LatentDirichletAllocation.perplexity takes no NaN: it is about whole documents. "
                "Use 'evidence' instead."
            )
        return float(
            np.exp(-taken.each(LatentDirichletAllocationModel.variational_bound).sum() / taken.counts.sum())
        )

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
            taken = self._read(given)
            rows, words = taken.counts.shape
            n = check_count(self, "sample", "n", n, each=rows * (words + 1))
            many, keys = taken.repeated(n), split_key_data(key, rows * n)
            filled = many.filled(
                keyed_answers, LatentDirichletAllocationModel.complete_sample, keys
            ).toarray()
            return filled if n == 1 else filled.reshape(n, rows, words)
        n = check_count(self, "sample", "n", n, each=self.n_features_in_ + 1)
        if length is None:
            length = self.length_law_.sample(n, generator(key))
        lengths = np.broadcast_to(np.asarray(length, float), (n,))
        keys = split_key_data(key, n)
        return keyed_answers(self.model_, LatentDirichletAllocationModel.sample, lengths, keys, block=256)[
            1
        ]

    def impute(self, X: Any) -> Any:
        """`X` with missing counts as the whole numbers next to their means; sparse if `X` is."""
        taken = self._read(X)
        method = LatentDirichletAllocationModel.complete_mean
        filled = taken.filled(seeded_answers, method, taken.seeds, self.seed_)
        missing = np.isnan(taken.counts.data)
        filled.data[missing] = np.rint(filled.data[missing])
        return taken.back(filled)

    @property
    def _candidates(self) -> int:
        return self.importance_samples or _CANDIDATES

    def parts(self, X: Any) -> dict[str, np.ndarray]:
        means = self.length_law_.mean * self.components_
        return {"weights": self.transform(X).mean(axis=0), "means": means}

    @property
    def length_law_(self) -> LengthLaw:
        """How long documents are."""
        return LengthLaw(float(self.model_.mean_length), float(self.model_.excess))

    @property
    def components_(self) -> np.ndarray:
        """The probability of each word in each topic, (n_topics, words)."""
        return np.asarray(self.model_.topics())
