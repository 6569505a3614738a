"""Files: an estimator in one safetensors file, and what is in such a file.

`estimator.save(path)` is the same as `save(estimator, path)`; `freeenergy.load` is `load`.
"""

from . import estimators as _estimators  # noqa: F401  files name what is defined there
from .shell._files import describe, load, save

__all__ = ["describe", "load", "save"]
