"""Estimators: the only objects that change; they follow scikit-learn."""

from .._lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__, globals())
