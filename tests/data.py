"""Rows of the shape that the contracts fit, for all tests that have no need of another.

A program is compiled for each shape of each estimator: what one test has compiled is there for the next.
"""

import numpy as np

# two columns, and as many rows as the default of the contract has
ROWS = np.random.RandomState(0).normal(size=(120, 2))
# a series is short: its steps are done one after another
STEPS = 24
