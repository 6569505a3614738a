"""Distributions: densities that can be evaluated, sampled and, in exponential families, fitted."""

from .._lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__, globals())
