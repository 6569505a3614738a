"""What all estimators share: what goes in, what they can do, files.  No model is in it.

An estimator of your own derives from `AbstractDensity` or `AbstractSequenceDensity`; with other
capabilities, from these and `AbstractRowEstimator` or `Shell`.  Everything that it needs is here.
"""

from .._lazy import lazy

__all__, __getattr__, __dir__ = lazy(__name__, __file__, globals())
