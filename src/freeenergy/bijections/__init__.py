"""Bijections: maps forward and back, with the logarithm of the change of volume."""

from .._lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__, globals())
