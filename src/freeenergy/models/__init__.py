"""Models: energies composed of distributions, bijections and networks, written for one event."""

from .._lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__, globals())
