"""The evidence of models with their parameters integrated out, beside held-out bits."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._core import Kind, free_size, parameter_space
from ..distributions import AbstractConjugatePrior
from ..estimators import Dequantised
from ..inference import AbstractMethod, SequentialMonteCarlo
from ..models import EvenTables
from ..shell import Shell, infer
from ..shell._infer import named_fields

NOTE = (
    "log evidence is log ∫ p(rows | θ) p(θ) dθ of all rows in nats under the prior that was given, and "
    "more is better. It is no held-out number, depends on the prior, and has no part in the order."
)


@dataclasses.dataclass(frozen=True)
class ParameterEvidence:
    """log ∫ p(rows | θ) p(θ) dθ of one model, or why there is none.

    Attributes:
        nats: of all rows together; NaN where there is none.
        stderr: its Monte Carlo standard error, zero in closed form.
        kind: in which sense it is known.
        prior: what is told of the prior.
        method: what is told of how it was had.
        reason: why there is none, in a sentence; else None.
        warnings: what the method warned of.
    """

    nats: float
    stderr: float
    kind: Kind
    prior: str
    method: str
    reason: str | None = None
    warnings: tuple[str, ...] = ()

    @staticmethod
    def missing(reason: str, prior: str = "") -> ParameterEvidence:
        """None, for a reason."""
        return ParameterEvidence(float("nan"), float("nan"), Kind.EXACT, prior, "", reason)

    def notes(self, label: str) -> list[str]:
        """What a reader should know of it."""
        if self.reason is not None:
            return [f"{label} has no log evidence: {self.reason}"]
        told = [f"The log evidence of {label} is under the prior {self.prior}, by {self.method}."]
        return told + [f"The log evidence of {label} warned: {text}" for text in self.warnings[:1]]


def priors_of(prior: Any, evidence: Any, labels: list[str]) -> dict[str, Any]:
    """Label → prior, where there is one; refuses what is none."""
    if evidence is not None and not isinstance(evidence, AbstractMethod):
        raise ValueError(
            "The 'evidence' parameter of compare must be a method of inference, such as "
            f"inference.SequentialMonteCarlo(), or None. Got {evidence!r} instead."
        )
    if prior is None:
        if evidence is not None:
            raise ValueError("The 'evidence' parameter of compare needs a 'prior' of parameters. Got none.")
        return {}
    known = isinstance(prior, AbstractConjugatePrior | EvenTables | Mapping) or callable(prior)
    if not known:
        raise ValueError(
            "The 'prior' parameter of compare must be a prior as infer takes it, or a dict with one for "
            f"the label of each model. Got {prior!r} instead."
        )
    if not isinstance(prior, Mapping) or not set(prior) & set(labels):
        return dict.fromkeys(labels, prior)
    unknown = [name for name in prior if name not in labels]
    if unknown:
        raise ValueError(
            f"The 'prior' parameter of compare must have labels of models: {', '.join(labels)}. "
            f"Got {unknown[0]!r} instead."
        )
    return dict(prior)


def told_prior(prior: Any) -> str:
    """A prior in a few words."""
    if isinstance(prior, Mapping):
        return ", ".join(f"{name} ~ {type(law).__name__}" for name, law in prior.items())
    if isinstance(prior, EvenTables):
        return f"EvenTables({prior.alpha:g})"
    return type(prior).__name__ if isinstance(prior, AbstractConjugatePrior) else _name_of(prior)


def _name_of(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _flat_fields(model: Any, prior: Any) -> list[str]:
    """The parameters that a prior by fields says nothing of: under a flat law there is no evidence."""
    if not isinstance(prior, Mapping):
        return []
    spaces = named_fields(parameter_space(model))
    if not set(prior) <= set(spaces):
        # which `infer` refuses by name
        return []
    return [name for name, space in spaces.items() if name not in prior and free_size(space)]


def parameter_evidence(
    fitted: Any, X: Any, prior: Any, method: AbstractMethod | None, seed: int
) -> ParameterEvidence:
    """That of a model fitted to all rows; in closed form for a conjugate prior and no method."""
    told = told_prior(prior)
    if isinstance(fitted, Dequantised):
        return ParameterEvidence.missing("it is a model of these rows with noise, not of them.", told)
    if not isinstance(fitted, Shell):
        return ParameterEvidence.missing("nothing is known of its parameters.", told)
    closed = isinstance(prior, AbstractConjugatePrior | EvenTables) and method is None
    chosen = SequentialMonteCarlo() if method is None and not closed else method
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            flat = _flat_fields(fitted.model_in_units, prior)  # pyright: ignore[reportAttributeAccessIssue]
            if flat:
                raise ValueError(f"its {flat[0]!r} has no prior, and a flat one has no evidence.")
            found = infer(fitted, X, prior=prior, method=chosen, key=seed).log_evidence
        except Exception as error:
            lines = str(error).strip().splitlines()
            return ParameterEvidence.missing(lines[0] if lines else f"{type(error).__name__}.", told)
    by = "closed form" if closed else type(chosen).__name__
    if found is None or np.isnan(float(found.nats)):
        return ParameterEvidence.missing(f"{by} gives none.", told)
    texts = dict.fromkeys(str(w.message).splitlines()[0] for w in caught)
    return ParameterEvidence(
        float(found.nats), float(found.stderr), found.kind, told, by, warnings=tuple(texts)
    )
