"""What comes back: the evidence for data under a model, and the result of a fit."""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import Any, Generic, TypeVar

import numpy as np

from ._markup import in_notebook, notes_in_notebook, table_in_notebook

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


_MEANINGS = {
    Kind.LOWER: ("The data are at least so probable under the model.",),
    Kind.UPPER: ("The data are at most so probable under the model.",),
    Kind.ESTIMATE: ("The truth may be on either side.",),
}


@dataclasses.dataclass(frozen=True, repr=False)
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

    It prints its mean with the standard error of that, not all samples.

    >>> found = Evidence(np.array([-1.0, -3.0]), np.zeros(2), Kind.EXACT)
    >>> found.mean
    -2.0
    >>> found
    Evidence(mean -2 ± 1 nats of 2 samples, exact)
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

    def _told(self) -> tuple[str, str, str]:
        """Mean with its error, how many samples, and the kind, in words."""
        n = len(self)
        if not n:
            return "unknown", "0 samples", self.kind.value
        with np.errstate(invalid="ignore"):
            mean, error = self.mean, self.mean_stderr
        known = math.isfinite(error) and (n > 1 or error > 0)
        text = f"{mean:.6g} ± {error:.2g}" if known else f"{mean:.6g}"
        return f"{text} nats", f"{n:,} sample{'s' if n != 1 else ''}", self.kind.value

    def __repr__(self) -> str:
        mean, samples, kind = self._told()
        return f"Evidence(mean {mean} of {samples}, {kind})"

    def _repr_html_(self) -> str:
        """A small table with what the kind means, for notebooks."""
        facts = zip(("mean of log p", "of", "kind"), self._told(), strict=True)
        return in_notebook(table_in_notebook([], facts), notes_in_notebook(_MEANINGS.get(self.kind, ())))

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


class Status(enum.Enum):
    """Why a fit stopped."""

    CONVERGED = "converged"
    LIMIT = "limit"
    NON_FINITE = "non-finite"
    INTERRUPTED = "interrupted"
    UNBOUNDED = "unbounded"


@dataclasses.dataclass(frozen=True)
class Fit(Generic[Model]):
    """The result of `learning.fit`.

    Attributes:
        model: the fitted model (the last good one if a number became non-finite).
        history: one array per recorded number, an entry per iteration; `history["objective"]` is what the
            learner lowers, if it lowers one thing.
        n_iter: iterations done.
        status: why it stopped.
        state: the learner's own last state, such as its Markov chains.
        trace: what the learner keeps of every iteration, a tree of arrays stacked along the first axis.
        note: says more of why it stopped than `reason` would.

    >>> found = Fit(None, {}, 12, Status.CONVERGED)
    >>> found.converged, found.reason
    (True, 'converged after 12 iterations')
    """

    model: Model
    history: dict[str, np.ndarray]
    n_iter: int
    status: Status
    state: Any = dataclasses.field(default=None, repr=False)
    trace: Any = dataclasses.field(default=None, repr=False)
    note: str = ""

    @property
    def converged(self) -> bool:
        """Whether the learner's own criterion was met."""
        return self.status is Status.CONVERGED

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C stopped it."""
        return self.status is Status.INTERRUPTED

    @property
    def reason(self) -> str:
        """A sentence on why it stopped."""
        return self.note or self._usual_reason()

    def _usual_reason(self) -> str:
        match self.status:
            case Status.CONVERGED:
                return f"converged after {self.n_iter} iterations"
            case Status.LIMIT:
                return f"reached the limit of {self.n_iter} iterations; raise 'max_iter' or loosen 'tol'"
            case Status.NON_FINITE:
                what = "the objective" if "objective" in self.history else "a metric"
                return (
                    f"{what} became non-finite at iteration {self.n_iter + 1}; the last good model is "
                    "kept. Try a smaller learning rate, stronger regularisation or rescaled data"
                )
            case Status.INTERRUPTED:
                return f"interrupted after {self.n_iter} iterations"
            case Status.UNBOUNDED:
                return f"the parameters grow without bound; stopped after {self.n_iter} iterations"
