"""Twenty public series, forecast from several origins by each method.

From four origins, a horizon apart, each method is fitted to what came before and forecasts the horizon (12
months, 8 quarters or 6 years) with intervals of 90 %.  MASE is the mean absolute error over that of the
seasonal naive forecast within the fitted part: below one is better than repeating the last season.
Coverage is the share of the values that the intervals hold.  freeenergy chooses, at each origin anew, among
three structural models and an autoregression by their forecasts within the last third of what came before.
(At first it chose by bits one step ahead; that long forecasts want another choice was seen on elnino.)
Of statsmodels' exponential smoothing the form with the least corrected AIC is taken, its SARIMAX has the
orders (1, 1, 1) and (0, 1, 1) of the season, AutoARIMA searches its own.  Series that grow in proportion
are forecast as logarithms by all methods.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from statsmodels import datasets as packaged
from statsmodels.datasets import elec_equip
from statsmodels.tsa.exponential_smoothing.ets import ETSModel
from statsmodels.tsa.statespace.sarimax import SARIMAX

import freeenergy as fe
from freeenergy.models import Autoregressive, Level, Trend, TrigonometricSeasonal

from . import mean_and_error

LEVEL = 0.9
ORIGINS = 4
# origins within what is known, from which the models of freeenergy are chosen
_WITHIN = 8
_HORIZON = {1: 6, 4: 8, 12: 12}


class Series(NamedTuple):
    """Values in order, and how many make a season; `log` where they grow in proportion."""

    values: np.ndarray
    season: int
    log: bool = False


def _macro(name: str, *, log: bool = False) -> Callable[[], Series]:
    return lambda: Series(packaged.macrodata.load_pandas().data[name].to_numpy(float), 4, log)


def _danish(name: str) -> Callable[[], Series]:
    return lambda: Series(packaged.danish_data.load_pandas().data[name].to_numpy(float), 4)


def _german(name: str) -> Callable[[], Series]:
    return lambda: Series(packaged.interest_inflation.load_pandas().data[name].to_numpy(float), 4)


def _co2() -> Series:
    weekly = packaged.co2.load_pandas().data["co2"]
    return Series(weekly.resample("MS").mean().interpolate().to_numpy()[-240:], 12)


def _elnino() -> Series:
    return Series(packaged.elnino.load_pandas().data.drop(columns="YEAR").to_numpy().ravel()[-240:], 12)


SERIES: dict[str, Callable[[], Series]] = {
    "co2": _co2,
    "elnino": _elnino,
    "elec_equip": lambda: Series(elec_equip.load_pandas().data.iloc[:, 0].to_numpy(float), 12),
    "nile": lambda: Series(packaged.nile.load_pandas().data["volume"].to_numpy(float), 1),
    "sunspots": lambda: Series(packaged.sunspots.load_pandas().data["SUNACTIVITY"].to_numpy(float), 1),
    **{name: _macro(name, log=True) for name in ("realgdp", "realcons", "realinv", "realgovt", "realdpi")},
    **{name: _macro(name, log=True) for name in ("cpi", "m1")},
    **{name: _macro(name) for name in ("tbilrate", "unemp", "infl", "realint")},
    **{name: _danish(name) for name in ("lrm", "ibo")},
    **{name: _german(name) for name in ("Dp", "R")},
}

# a forecast is mean, low and high of each step
Ahead = tuple[np.ndarray, np.ndarray, np.ndarray]


def seasonal_naive(y: np.ndarray, season: int, steps: int) -> Ahead:
    mean = np.resize(y[-season:], steps)
    gap = y[season:] - y[:-season]
    spread = 1.645 * np.sqrt(np.mean(gap**2) * (1 + np.arange(steps) // season))
    return mean, mean - spread, mean + spread


def models(steps: int, season: int) -> dict[str, Any]:
    """What is compared on a series of so many steps."""
    waves = TrigonometricSeasonal(season, season // 2) if season > 1 else None

    def with_season(block: Any) -> Any:
        return block if waves is None else block + waves

    return {
        "level": fe.StructuralTimeSeries(with_season(Level())),
        "trend": fe.StructuralTimeSeries(with_season(Trend())),
        "level and AR(2)": fe.StructuralTimeSeries(with_season(Level() + Autoregressive([0.5, 0.0]))),
        "AR": fe.AutoRegression(min(2 * season + 1, steps // 8)),
    }


def ours(y: np.ndarray, season: int, steps: int) -> Ahead:
    """The model whose forecasts of the horizon had the least error in the last third of what it may see."""
    several = models(len(y), season)
    first = 2 * len(y) // 3
    places = np.unique(np.linspace(first, len(y) - steps, _WITHIN).astype(int))
    series = [y[:t, None] for t in places]
    came = np.stack([y[t : t + steps] for t in places])
    errors = {}
    for name, model in several.items():
        found = model.fit(series[0]).forecast(series, steps, level=LEVEL)
        errors[name] = np.abs(np.stack(found.mean)[..., 0] - came).mean()
    chosen = several[min(errors, key=errors.__getitem__)]
    mean, low, high = chosen.fit(y[:, None]).forecast(y[:, None], steps, level=LEVEL)
    return mean[:, 0], low[:, 0], high[:, 0]


def ets(y: np.ndarray, season: int, steps: int) -> Ahead:
    """Statsmodels' exponential smoothing: the trend and the season of least corrected AIC."""
    best = None
    for trend in (None, "add"):
        for damped in {False, trend is not None}:
            for seasonal in {None, "add" if season > 1 else None}:
                periods = season if seasonal else None
                model = ETSModel(pd.Series(y), "add", trend, damped, seasonal, seasonal_periods=periods)
                found: Any = model.fit(disp=False)
                best = found if best is None or found.aicc < best.aicc else best
    assert best is not None
    frame = best.get_prediction(start=len(y), end=len(y) + steps - 1).summary_frame(alpha=1 - LEVEL)
    return frame["mean"].to_numpy(), frame["pi_lower"].to_numpy(), frame["pi_upper"].to_numpy()


def sarimax(y: np.ndarray, season: int, steps: int) -> Ahead:
    """Statsmodels' SARIMAX with the orders of the airline model and an AR term."""
    seasonal = (0, 1, 1, season) if season > 1 else (0, 0, 0, 0)
    found: Any = SARIMAX(y, order=(1, 1, 1), seasonal_order=seasonal).fit(disp=False)
    frame = found.get_forecast(steps).summary_frame(alpha=1 - LEVEL)
    return tuple(frame[name].to_numpy() for name in ("mean", "mean_ci_lower", "mean_ci_upper"))  # type: ignore[return-value]


def auto_arima(y: np.ndarray, season: int, steps: int) -> Ahead:
    from statsforecast.models import AutoARIMA

    found = AutoARIMA(season_length=season).forecast(y=y, h=steps, level=[int(100 * LEVEL)])
    return found["mean"], found[f"lo-{int(100 * LEVEL)}"], found[f"hi-{int(100 * LEVEL)}"]


METHODS: dict[str, Callable[[np.ndarray, int, int], Ahead]] = {
    "freeenergy": ours,
    "statsmodels ETS": ets,
    "statsmodels SARIMAX": sarimax,
    "StatsForecast AutoARIMA": auto_arima,
    "seasonal naive": seasonal_naive,
}


def study(name: str, *, quick: bool, kept: dict[str, Any] | None = None) -> dict[str, Any]:
    """All methods on one series: MASE, coverage, seconds; of the peers, what is kept stays."""
    y, season, log = SERIES[name]()
    steps, found = _HORIZON[season], {}
    for method, run in METHODS.items():
        before = (kept or {}).get("methods", {}).get(method)
        if run is not ours and isinstance(before, list):
            found[method] = before
            continue
        errors, held, n, started = [], 0, 0, time.perf_counter()
        try:
            for back in range(1 if quick else ORIGINS, 0, -1):
                past, coming = y[: len(y) - back * steps], y[len(y) - back * steps :][:steps]
                scale = np.mean(np.abs(past[season:] - past[:-season]))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ahead = run(np.log(past) if log else past, season, steps)
                mean, low, high = (np.exp(part) if log else np.asarray(part) for part in ahead)
                errors.append(np.abs(coming - mean).mean() / scale)
                held, n = held + int(((low <= coming) & (coming <= high)).sum()), n + steps
            found[method] = [float(np.mean(errors)), held / n, time.perf_counter() - started]
        except Exception as problem:
            found[method] = f"{type(problem).__name__}: {problem}".splitlines()[0][:120]
    return {"steps": len(y), "season": season, "values": ORIGINS * steps, "methods": found}


def report(results: dict[str, dict[str, Any]]) -> list[str]:
    """The page, from what was found of each series."""
    lines = ["| series | steps (season) | " + " | ".join(METHODS) + " |", "|---" * (len(METHODS) + 2) + "|"]
    scores: dict[str, list[list[float]]] = {method: [] for method in METHODS}
    for name, result in results.items():
        cells = []
        numbers = [v[0] for v in result["methods"].values() if not isinstance(v, str)]
        for method in METHODS:
            value = result["methods"].get(method)
            if isinstance(value, list):
                scores[method].append(value)
                text = f"{value[0]:.2f}"
                cells.append((f"**{text}**" if value[0] == min(numbers) else text) + f", {value[1]:.0%}")
            else:
                cells.append("failed")
        lines.append(f"| {name} | {result['steps']} ({result['season']}) | " + " | ".join(cells) + " |")
    some = [m for m in METHODS if scores[m]]
    rows = {
        "median MASE": {m: f"{np.median([one[0] for one in scores[m]]):.2f}" for m in some},
        "mean MASE": {m: mean_and_error([one[0] for one in scores[m]], ".2f") for m in some},
        f"coverage ({LEVEL:.0%})": {m: mean_and_error([one[1] for one in scores[m]], ".0%") for m in some},
    }
    for title, cells in rows.items():
        lines.append(f"| **{title}** | | " + " | ".join(cells.get(m, "–") for m in METHODS) + " |")
    return lines
