"""How well the models do on public data: `python -m studies imputation`, `… densities`, `… forecasts`."""

import math


def mean_and_error(values: list[float], form: str) -> str:
    """A mean and its standard error."""
    n = len(values)
    mean = sum(values) / n
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / max(n - 1, 1) / n)
    return f"{mean:{form}} ± {spread:{form}}"
