"""Estimators of documents."""

from ._lda import LatentDirichletAllocation

__all__ = [
    "LatentDirichletAllocation",
]
