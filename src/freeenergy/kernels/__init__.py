"""Kernels: similarity of pairs as objects that add, multiply and are learned."""

from .._lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__, globals())
