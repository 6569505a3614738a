"""Generative adversarial networks of rows given their label."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array

from ..._core import AbstractAlgorithm, Fit, has_nan, map_rows, split_key, split_key_data
from ...learning import AbstractEntropy, AbstractPenalty, AbstractValue
from ...models import LabelledAdversaries, label_codes, labelled_adversaries
from ...shell import Rows
from ...shell._spread import SpreadTable
from ..tables._gan import PENALTY, AbstractGAN
from ._class_conditional import AbstractClassConditional, ClassTable


class SpreadClassTable(SpreadTable, ClassTable):
    """Rows of columns of any kind, given as reals, that come with a label each."""


class ClassConditionalGAN(AbstractClassConditional, AbstractGAN):
    """A generative adversarial network that is told a label y: x = G(z, y); its critic sees x and y.

    It draws rows of each label and has no density, as `GAN`, whose game is played: what is made is shown to
    the critic with the label that the generator was told, drawn as frequently as it was among the rows.

    Args:
        latent_dim, value, penalty, entropy, clip, critic_steps, average: as in `GAN`.
        width, depth, learning_rate, batch_size, max_iter, learner: as in `GAN`.
        random_state, verbose, checkpoint: as everywhere.

    Attributes:
        classes_: the labels.
        class_prior_: p(y), the share of each label.
        model_: the fitted `freeenergy.models.LabelledAdversaries`, of rescaled rows.
        spread_: what the values of columns can be, and how they are shown to the critic.
        history_: `critic` and `generator` by epoch.
        n_iter_, converged_, scaling_, …: as everywhere.

    References:
        Mirza and Osindero (2014), Conditional generative adversarial nets.

    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = ClassConditionalGAN(width=16, max_iter=2, random_state=0).fit(X, np.repeat(["a", "b"], 100))
    >>> model.sample(3, random_state=0, labels="b").shape
    (3, 2)
    """

    intake = SpreadClassTable
    model_: LabelledAdversaries

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

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _labelled(
        self, columns: int, shares: np.ndarray, incomplete: bool, key: Array
    ) -> LabelledAdversaries:
        sizes = {"width": self.width, "depth": self.depth}
        return labelled_adversaries(
            columns, self._noise(columns), shares, mask_input=incomplete, **sizes, key=key
        )

    def _make(self, columns: int, incomplete: bool, key: Array) -> LabelledAdversaries:
        labels = len(self.classes_)
        return self._labelled(columns, np.full(labels, 1 / labels), incomplete, key)

    def _learn(self, rows: Rows, key: Array) -> Fit:
        assert rows.known is not None
        start_key, fit_key = split_key(key)
        start = self._labelled(rows.x.shape[1], self._shares(rows), has_nan(rows.x), start_key)
        codes = np.asarray(start.table)[rows.known[:, 0].astype(int)]
        return self._play(start, np.column_stack([rows.x, codes]), rows, fit_key)

    @property
    def _corners(self) -> tuple[np.ndarray, np.ndarray] | None:
        corners = super()._corners
        # the numbers of a label have no cells
        none = np.zeros(label_codes(len(self.classes_)).shape[1])
        return None if corners is None else (np.append(corners[0], none), np.append(corners[1], none))

    def _draw(self, n: int, *, key: Array, labels: np.ndarray | None = None, **how: Any) -> np.ndarray:
        places = self._drawn_labels(n, key) if labels is None else np.resize(labels, n)
        return map_rows(_drawn, (split_key_data(key, n), places), self.model_)


def _drawn(pair: tuple[Array, Array], model: LabelledAdversaries) -> Array:
    key, label = pair
    return model.sample_of(label, key=jax.random.wrap_key_data(key))
