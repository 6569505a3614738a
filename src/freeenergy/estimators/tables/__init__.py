"""Estimators of tables: a row for each sample."""

from ..._lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__, globals())
