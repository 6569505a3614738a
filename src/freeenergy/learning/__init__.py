"""Learning: one loop, learners, objectives and sources of rows."""

from .._lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__, globals())
