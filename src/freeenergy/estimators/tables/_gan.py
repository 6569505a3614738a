"""Generative adversarial networks as estimators: rows that can be drawn and not be scored."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
from jax import Array
from sklearn.utils.validation import check_is_fitted

from ..._core import AbstractAlgorithm, Data, Fit, fold_key, has_nan, split_key
from ...learning import (
    AbstractEntropy,
    AbstractPenalty,
    AbstractValue,
    CriticLoss,
    Game,
    GeneratorLoss,
    NonSaturating,
    Optimiser,
    Player,
    ZeroCentred,
    information_bound,
    only,
    within,
)
from ...models import Codes, adversaries
from ...shell import (
    AbstractImplicit,
    Predicts,
    PredictsProbabilities,
    Rows,
    TransformsRows,
    cast,
    check_instance,
    check_int,
    check_real,
    framed,
    framed_chances,
)
from ...shell._networks import check_networks, flat_adam

# draws by which the information of codes is measured
_INFORMATION_DRAWS = 4096
# Adam without memory of the slope: what the other player did a while ago tells nothing
_MOMENTA = {"b1": 0.0, "b2": 0.99}
# enough for the players not to circle, and little enough for gaps between clusters to stay empty
PENALTY = ZeroCentred(0.1)
# random weights, and the measure of information, by one program each
_information = eqx.filter_jit(information_bound)


class AbstractGAN(AbstractImplicit):
    """A generator that learns by fooling a critic."""

    latent_dim: int | None
    value: AbstractValue | None
    penalty: AbstractPenalty | None
    entropy: AbstractEntropy | None
    clip: float | None
    critic_steps: int
    average: float
    width: int
    depth: int
    learning_rate: float
    batch_size: int
    max_iter: int
    learner: AbstractAlgorithm | None
    model_: Any

    @property
    def _must_converge(self) -> bool:
        return False

    def _codes(self) -> Codes | None:
        """The code beside the noise, if there is one."""
        return None

    def _information(self) -> float:
        """What a nat of information about the code is worth."""
        return 0.0

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_instance(self, "value", AbstractValue, optional=True)
        check_instance(self, "penalty", AbstractPenalty, optional=True)
        check_instance(self, "entropy", AbstractEntropy, optional=True)
        check_int(self, "critic_steps", 1)
        check_int(self, "latent_dim", optional=True)
        check_real(self, "clip", closed=False, optional=True)
        check_real(self, "average", 0.0, 1.0)

    def _noise(self, columns: int) -> int:
        """Entries of z."""
        return max(columns, 8) if self.latent_dim is None else self.latent_dim

    def _make(self, columns: int, incomplete: bool, key: Array) -> Any:
        return adversaries(
            columns,
            self._noise(columns),
            codes=self._codes(),
            mask_input=incomplete,
            width=self.width,
            depth=self.depth,
            key=key,
        )

    def _check_size(self, rows: int, columns: int) -> None:
        check_networks(
            lambda key: self._make(columns, True, key),
            self.batch_size * (columns + self.width * self.depth),
            f"{type(self).__name__} of {columns:,} columns with layers of width {self.width:,}",
            "Use a smaller 'width', or PCA first.",
        )

    def _game(self, start: Any) -> AbstractAlgorithm:
        """Critic and generator, each with the optimiser and the objective of its own."""
        value = NonSaturating() if self.value is None else self.value
        adam = flat_adam(self.learning_rate, **_MOMENTA)
        clipped = adam if self.clip is None else Optimiser(optax.chain, adam, Optimiser(within, self.clip))
        parts = (lambda m: m.generator) if start.codes is None else (lambda m: (m.generator, m.recogniser))
        return Game(
            (
                Player(
                    "critic",
                    clipped,
                    self._with_fresh_noise(CriticLoss(value, self.penalty)),
                    only(start, lambda m: m.critic),
                    self.critic_steps,
                ),
                Player(
                    "generator",
                    adam,
                    GeneratorLoss(value, self._information(), self.entropy),
                    only(start, parts),
                ),
            ),
            batch_size=self.batch_size,
            average=self.average or None,
        )

    def _learn(self, rows: Rows, key: Array) -> Fit:
        start_key, fit_key = split_key(key)
        start = self._make(rows.x.shape[1], has_nan(rows.x), start_key)
        return self._play(start, rows.x, rows, fit_key)

    def _play(self, start: Any, x: np.ndarray, rows: Rows, key: Array) -> Fit:
        """The game about events x, which rows have made."""
        # a learner of the user's own does not draw noise anew
        x = x if self.learner is None else self._noisy(x, fold_key(key, 3))
        data = Data.of(x, rows.weight, dtype=np.float32)
        result = self._run(start, self.learner or self._game(start), data, rows, key)
        return dataclasses.replace(result, model=cast(result.model, np.float64))


class GAN(AbstractGAN):
    """A generative adversarial network: x = G(z), z ~ N(0, I), with a critic that tells x from data.

    It draws rows and has no density: `sample` is all that it does, and what it is worth is told by the
    measures for two samples in `freeenergy.evaluation`.  Critic and generator move in turn; what is kept is
    an average over the last steps, since the players circle about their equilibrium.  The game has no
    objective that falls, so a fit ends after `max_iter` epochs; `history_` has what each player lowered.

    Entries that are not observed are hidden from the critic, in data and in what is made alike: the law of
    complete rows is learned where holes come by chance alone.  Columns may be of any kind: whole numbers
    are shown to the critic with noise, labels as a number for each value; draws are values that can occur.

    Args:
        latent_dim: entries of z; None takes as many as there are columns, and eight at least.
        value: what is played for: `NonSaturating()` (the default), `Minimax()`, `Wasserstein()`, `Hinge()`
            or `FDivergence(…)` of `freeenergy.learning`.
        penalty: what the critic pays for its slopes: `ZeroCentred(λ)`, `GradientPenalty(λ)` or None.
        entropy: what the generator pays for draws that are too much alike: `InflatedGaussian(λ)`,
            `NeighbourEntropy(λ)` or None.  With `Wasserstein()` the critic is an energy with its sign
            changed, which the generator learns to draw from.
        clip: bound of the critic's weights, the older way to bound its slopes; None for none.
        critic_steps: of the critic for each of the generator.
        average: decay of the average of the weights over steps; zero for none.
        width, depth: hidden units in a layer, and layers, of both networks.
        learning_rate, batch_size, max_iter: of Adam; an iteration is an epoch.
        learner: replaces the game.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        model_: the fitted `freeenergy.models.Adversaries`, of rescaled rows.
        history_: `critic` and `generator` by epoch.
        spread_: what the values of columns can be, and how they are shown to the critic.
        n_iter_, converged_, scaling_, …: as everywhere.

    References:
        Goodfellow et al. (2014), Generative adversarial nets.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> GAN(width=16, max_iter=2, random_state=0).fit(X).sample(3, random_state=0).shape
    (3, 2)
    """

    def __init__(
        self,
        latent_dim: int | None = None,
        *,
        value: AbstractValue | None = None,
        penalty: AbstractPenalty | None = PENALTY,
        entropy: AbstractEntropy | None = None,
        clip: float | None = None,
        critic_steps: int = 1,
        average: float = 0.995,
        width: int = 128,
        depth: int = 3,
        learning_rate: float = 1e-3,
        batch_size: int = 256,
        max_iter: int = 200,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.latent_dim = latent_dim
        self.value = value
        self.penalty = penalty
        self.entropy = entropy
        self.clip = clip
        self.critic_steps = critic_steps
        self.average = average
        self.width = width
        self.depth = depth
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint


class InfoGAN(TransformsRows, Predicts, PredictsProbabilities, AbstractGAN):
    """A `GAN` with a code c that can be read off its draws: x = G(z, c), Q(c | x).

    The generator lowers what the critic says less `information` times the bound H(c) + E log Q(c | x) of
    the mutual information of code and draw, so that codes come to stand for what varies most plainly.

    Args:
        labels: how many values each label of the code has.
        numbers: how many numbers, uniform over (−1, 1), the code has.
        information: what a nat of information is worth.
        latent_dim, value, penalty, entropy, clip, critic_steps, average: as in `GAN`.
        width, depth, learning_rate, batch_size, max_iter, learner: as in `GAN`.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        model_: the fitted `freeenergy.models.Adversaries`, of rescaled rows.
        information_: the bound in nats, with its standard error; the entropy of the code is its most.
        spread_: what the values of columns can be, and how they are shown to the critic.
        history_, n_iter_, converged_, scaling_, …: as everywhere.

    References:
        Chen et al. (2016), InfoGAN.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = InfoGAN((3,), width=16, max_iter=2, random_state=0).fit(X)
    >>> model.predict_proba(X[:2]).shape
    (2, 3)
    """

    information_: tuple[float, float]

    def __init__(
        self,
        labels: tuple[int, ...] = (8,),
        numbers: int = 0,
        *,
        information: float = 1.0,
        latent_dim: int | None = None,
        value: AbstractValue | None = None,
        penalty: AbstractPenalty | None = PENALTY,
        entropy: AbstractEntropy | None = None,
        clip: float | None = None,
        critic_steps: int = 1,
        average: float = 0.995,
        width: int = 128,
        depth: int = 3,
        learning_rate: float = 1e-3,
        batch_size: int = 256,
        max_iter: int = 200,
        learner: AbstractAlgorithm | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.labels = labels
        self.numbers = numbers
        self.information = information
        self.latent_dim = latent_dim
        self.value = value
        self.penalty = penalty
        self.entropy = entropy
        self.clip = clip
        self.critic_steps = critic_steps
        self.average = average
        self.width = width
        self.depth = depth
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _codes(self) -> Codes:
        return Codes(tuple(self.labels), self.numbers)

    def _information(self) -> float:
        return float(self.information)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_int(self, "numbers", 0)
        check_real(self, "information", 0.0)
        good = isinstance(self.labels, tuple | list) and all(
            isinstance(values, int | np.integer) and values >= 2 for values in self.labels
        )
        if not good or not (len(self.labels) or self.numbers):
            raise ValueError(
                "The 'labels' parameter of InfoGAN must be a tuple of ints in the range [2, inf), and not "
                f"empty unless there are 'numbers'. Got {self.labels!r} instead."
            )

    def _learn(self, rows: Rows, key: Array) -> Fit:
        result = super()._learn(rows, key)
        bound, error = jax.device_get(_information(result.model, _INFORMATION_DRAWS, key=fold_key(key, 7)))
        self.information_ = float(bound), float(error)
        return result

    @property
    def _n_features_out(self) -> int:
        return self._codes().size

    @framed_chances
    def predict_proba(self, X: Any) -> Any:
        """The probability of each value of the first label, for each row."""
        check_is_fitted(self, "model_")
        if not len(self.labels):
            raise ValueError("InfoGAN.predict_proba needs a label in the code. Got 'labels=()'.")
        return self.transform(X)[:, : self.labels[0]]

    @framed
    def predict(self, X: Any) -> Any:
        """The most probable value of the first label, for each row."""
        return np.argmax(np.asarray(self.predict_proba(X)), axis=1)
