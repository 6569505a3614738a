"""Evaluation: arrays in, numbers out: association, intervals, laws, splits, calibration, tests, pooling."""

from .._lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__, globals())
