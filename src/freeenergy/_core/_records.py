"""What comes back: the evidence for data under a model, and the result of a fit."""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import Any, Generic, TypeVar

import numpy as np

Model = TypeVar("Model")

# a bound that grows by more than this share of the doubling before has a limit nobody knows
_SLOWEST = 0.9


class Kind(enum.Enum):
    """How a log-probability is known."""

    EXACT = "exact"
    LOWER = "lower bound"
    UPPER = "upper bound"
    ESTIMATE = "estimate"

    def combine(self, other: Kind) -> Kind:
        """The kind of a sum of two such numbers."""
        if self is other or other is Kind.EXACT:
            return self
        return other if self is Kind.EXACT else Kind.ESTIMATE


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Log-probability of each sample, how well it is known, and in which sense.

    Attributes:
        nats: log p(x) for each sample, in the units of the data.
        stderr: Monte Carlo standard error of each entry of `nats` (zero if none was used).
        kind: exact, lower bound, upper bound or estimate.
        shared: the part of `stderr` that is one and the same error in every entry, such as that of an
            estimated log Z; it does not average out.
        growth: of a bound from importance samples, by how much it grew when their number was doubled, the
            last time and the time before, shape (samples, 2); None where that is not known.  From it the
            distance to log p(x) can be estimated.

    >>> Evidence(np.array([-1.0, -3.0]), np.zeros(2), Kind.EXACT).mean
    -2.0
    """

    nats: np.ndarray
    stderr: np.ndarray
    kind: Kind
    shared: float = 0.0
    growth: np.ndarray | None = None

    def __post_init__(self) -> None:
        if np.shape(self.nats) != np.shape(self.stderr):
            raise ValueError(
                "The 'stderr' of Evidence must have the shape of 'nats', "
                f"{np.shape(self.nats)}. Got {np.shape(self.stderr)} instead."
            )

    def __len__(self) -> int:
        return len(self.nats)

    @property
    def mean(self) -> float:
        """Mean of `nats` over the samples."""
        return float(np.mean(self.nats))

    @property
    def mean_stderr(self) -> float:
        """Standard error of `mean`, from the spread over samples and the shared Monte Carlo error.

        The spread over samples already contains the independent Monte Carlo noise of each entry;
        with a single sample only the Monte Carlo error is known.
        """
        n = len(self.nats)
        if n < 2:
            return float(self.stderr[0])
        return math.hypot(float(np.std(self.nats, ddof=1)) / math.sqrt(n), self.shared)

    @property
    def gap(self) -> tuple[float, float]:
        """By how much `mean` is too low on average, estimated from `growth`, and the error of that.

        Each doubling of the samples makes the gap smaller by some factor r, so that what is left is what
        the last doubling brought, times r + r² + … .  NaN where nothing is known of the growth, infinite
        where it hardly falls; zero for what is exact.
        """
        if self.kind is not Kind.LOWER:
            return 0.0, 0.0
        if self.growth is None:
            return math.nan, math.nan
        last, before = self.growth.mean(axis=0).tolist()
        # of finite variance the gap falls by half
        if last <= 0.5 * before or before <= 0:
            gap, slopes = last, np.array([1.0, 0.0])
        elif last < _SLOWEST * before:
            rest = before - last
            gap, slopes = (
                last**2 / rest,
                np.array([2 * last / rest + (last / rest) ** 2, -((last / rest) ** 2)]),
            )
        else:
            return math.inf, math.inf
        moved = (self.growth - np.array([last, before])) @ slopes
        return gap, float(np.sqrt(np.mean(moved**2) / max(len(self) - 1, 1)))

    @property
    def bits(self) -> np.ndarray:
        """Code length −log₂ p(x) of each sample: fewer is better."""
        return -self.nats / math.log(2)


@dataclasses.dataclass(frozen=True)
class Fit(Generic[Model]):
    """The result of `learning.fit`.

    Attributes:
        model: the fitted model (the last good one if the objective became non-finite).
        history: one array per recorded quantity, an entry per iteration; `history["objective"]`
            is what the learner lowers.
        n_iter: iterations done.
        converged: whether the learner's own criterion was met.
        reason: a sentence on why the loop stopped.
        interrupted: whether Ctrl-C stopped it.
        state: the learner's own last state, such as its Markov chains.
    """

    model: Model
    history: dict[str, np.ndarray]
    n_iter: int
    converged: bool
    reason: str
    interrupted: bool = False
    state: Any = dataclasses.field(default=None, repr=False)
