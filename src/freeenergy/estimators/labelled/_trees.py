"""Regression trees as arrays, so that files keep what scikit-learn has grown."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn import config_context
from sklearn.tree import DecisionTreeRegressor

# parts of a unit that answers of trees are whole multiples of
_GRID = 2.0**30


def on_grid(y: np.ndarray) -> np.ndarray:
    """Answers of size one without their last digits.

    Trees choose between splits that are equally good but for rounding, which other units change.

    >>> float(on_grid(np.array([0.1 + 0.2]))[0]) == float(on_grid(np.array([0.3]))[0])
    True
    """
    return np.round(y * _GRID) / _GRID


class Tree(NamedTuple):
    """A fitted tree: from the root to the left where x[feature] ≤ threshold, else to the right.

    Attributes:
        feature: the column that a node asks for; negative in a leaf.
        threshold: what it is compared with, in single precision.
        left, right: the nodes below.
        missing_left: whether a row without that entry goes to the left.
        value: (nodes, outputs), the prediction of a leaf.

    >>> stump = Tree.of(DecisionTreeRegressor(max_depth=1).fit([[0.0], [1.0]], [3.0, 5.0]))
    >>> stump.predict(np.array([[0.2], [0.9]])).tolist()
    [3.0, 5.0]
    """

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    missing_left: np.ndarray
    value: np.ndarray

    @staticmethod
    def of(fitted: DecisionTreeRegressor) -> Tree:
        """What a regressor of scikit-learn has found."""
        tree: Any = fitted.tree_
        return Tree(
            np.array(tree.feature),
            np.array(tree.threshold),
            np.array(tree.children_left),
            np.array(tree.children_right),
            np.array(tree.missing_go_to_left, bool),
            np.array(tree.value[:, :, 0]),
        )

    @staticmethod
    def grown(
        by: DecisionTreeRegressor, x: np.ndarray, y: np.ndarray, weight: np.ndarray, seed: int
    ) -> Tree:
        """What a regressor finds in complete rows of single precision, without checks of its own."""
        by.random_state = seed
        with config_context(skip_parameter_validation=True):
            by.fit(x, y, sample_weight=None if (weight == 1).all() else weight, check_input=False)
        return Tree.of(by)

    def leaf(self, x: np.ndarray) -> np.ndarray:
        """The leaf of each row."""
        x = np.asarray(x, np.float32)
        node = np.zeros(len(x), int)
        rows = np.arange(len(x))
        while len(rows):
            at = node[rows]
            inner = self.feature[at] >= 0
            rows, at = rows[inner], at[inner]
            entry = x[rows, self.feature[at]]
            goes_left = np.where(np.isnan(entry), self.missing_left[at], entry <= self.threshold[at])
            node[rows] = np.where(goes_left, self.left[at], self.right[at])
        return node

    def predict(self, x: np.ndarray) -> np.ndarray:
        """The prediction for each row, with an axis of outputs if there are several."""
        found = self.value[self.leaf(x)]
        return found[:, 0] if found.shape[1] == 1 else found


class LabelTree(NamedTuple):
    """A tree of the shares of labels, drawn in as if one more row of all labels were in each leaf.

    Attributes:
        tree: whose values are the shares.
        classes_: the numbers of the labels.

    >>> tree = LabelTree.grown(np.array([[0.0], [1.0]]), np.array([0, 1]), np.ones(2), 0)
    >>> tree.predict_proba(np.array([[0.0]])).tolist()
    [[0.75, 0.25]]
    """

    tree: Tree
    classes_: np.ndarray

    @staticmethod
    def grown(x: np.ndarray, y: np.ndarray, weight: np.ndarray, seed: int) -> LabelTree:
        """A tree of rows and labels; squared error of zeros and ones is Gini's index."""
        kept = weight > 0
        x, y, weight = x[kept], y[kept], weight[kept]
        labels = np.unique(y)
        ones = (y[:, None] == labels).astype(float)
        fitted = DecisionTreeRegressor(random_state=seed).fit(x, ones, sample_weight=weight)
        tree = Tree.of(fitted)
        size = np.bincount(tree.leaf(x), weight, len(tree.value))[:, None]
        shares = np.average(ones, axis=0, weights=weight)
        return LabelTree(tree._replace(value=(size * tree.value + shares) / (size + 1)), labels)

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """The probability of each label."""
        return self.tree.value[self.tree.leaf(x)]
