"""The first fit and score in a new process, imports included: what a newcomer waits for.

    python -m benchmarks.first_fit NAME ours|theirs

does one of them and prints the CPU seconds, the seconds, and how many programs were compiled.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._race import Outcome, Skipped, Workload

# what the first fit of a mixture took when this was first measured, with nothing on disk: 7.1 CPU seconds
# where scikit-learn took 1.3; half of that is the aim, and with programs on disk 1.5 × the peer
COLD, WARM = 1.3 / (7.1 / 2), 1 / 1.5


def _rows(kind: str) -> Any:
    import numpy as np

    rng = np.random.default_rng(0)
    if kind == "first_hmm":
        level = np.cumsum(rng.random(400) < 0.05) % 2
        return 3.0 * level[:, None] + rng.normal(size=(400, 2))
    if kind == "first_vae":
        return (rng.random((1000, 64)) < 0.3).astype(float)
    return np.concatenate([rng.normal(size=(400, 4)), rng.normal(size=(600, 4)) + 3])


def _our_mixture(X: Any) -> float:
    import freeenergy as fe

    return fe.GaussianMixture(3, random_state=0).fit(X).score(X)


def _their_mixture(X: Any) -> float:
    from sklearn.mixture import GaussianMixture

    return GaussianMixture(3, random_state=0).fit(X).score(X)


def _our_hmm(X: Any) -> float:
    import freeenergy as fe

    return fe.HMM(2, random_state=0).fit(X).score(X)


def _their_hmm(X: Any) -> float:
    from hmmlearn.hmm import GaussianHMM

    return GaussianHMM(2, "full", random_state=0).fit(X).score(X)


def _our_vae(X: Any) -> float:
    import freeenergy as fe

    vae = fe.VAE(8, width=64, max_iter=20, emission=fe.distributions.Bernoulli, random_state=0)
    return vae.fit(X).score(X)


def _their_vae(X: Any) -> float:
    import torch
    from torch import nn

    torch.manual_seed(0)
    x = torch.from_numpy(X).float()
    encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))
    optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)

    def loss(batch: Any) -> Any:
        mean, log_variance = encoder(batch).chunk(2, dim=1)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        misfit = nn.functional.binary_cross_entropy_with_logits(decoder(z), batch, reduction="sum")
        divergence = 0.5 * torch.sum(mean**2 + log_variance.exp() - 1 - log_variance)
        return (misfit + divergence) / len(batch)

    for _ in range(20):
        order = torch.randperm(len(x))
        for first in range(0, len(x), 128):
            optimiser.zero_grad()
            loss(x[order[first : first + 128]]).backward()
            optimiser.step()
    with torch.no_grad():
        return -float(loss(x))


CONTESTANTS: dict[str, dict[str, Callable[[Any], float]]] = {
    "first_mixture": {"ours": _our_mixture, "theirs": _their_mixture},
    "first_hmm": {"ours": _our_hmm, "theirs": _their_hmm},
    "first_vae": {"ours": _our_vae, "theirs": _their_vae},
}
NEEDS = {"first_mixture": "sklearn", "first_hmm": "hmmlearn", "first_vae": "torch"}


def _fresh(name: str, side: str, cache: str) -> tuple[float, float, int]:
    """CPU seconds, seconds and programs of a new process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.first_fit", name, side],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "XDG_CACHE_HOME": cache, "LOCALAPPDATA": cache, "HOME": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    cpu, wall, programs = done.stdout.split()
    return float(cpu), float(wall), int(programs)


def _race(name: str, *, warm: bool) -> Callable[[bool], Outcome | Skipped]:
    def run(quick: bool) -> Outcome | Skipped:
        if importlib.util.find_spec(NEEDS[name]) is None:
            return Skipped(f"{NEEDS[name]} is not installed")
        ours, theirs = [], []
        for _ in range(1 if quick else 3):
            with tempfile.TemporaryDirectory() as cache:
                first = _fresh(name, "ours", cache)
                ours.append(_fresh(name, "ours", cache) if warm else first)
                theirs.append(_fresh(name, "theirs", cache))
        waited = [min(times[1] for times in side) for side in (ours, theirs)]
        note = f"{ours[0][2]} programs; {waited[0]:.1f} and {waited[1]:.1f} s of waiting"
        return Outcome([t[0] for t in ours], [t[0] for t in theirs], True, note, "CPU s")

    return run


def _workload(name: str, what: str, peer: str, *, warm: bool) -> Workload:
    state = "the programs of an earlier process on disk" if warm else "nothing on disk"
    return Workload(
        f"{what}: first fit and score in a new process, imports included, with {state}",
        peer,
        WARM if warm else COLD,
        _race(name, warm=warm),
    )


_WHAT = {
    "first_mixture": ("GaussianMixture, 1,000 × 4, 3 components", "scikit-learn"),
    "first_hmm": ("HMM, 400 steps of 2 columns, 2 states", "hmmlearn"),
    "first_vae": ("VAE, 1,000 × 64, 20 epochs", "PyTorch, same network"),
}
WORKLOADS = {
    f"{name}_{'warm' if warm else 'cold'}": _workload(name, *what, warm=warm)
    for name, what in _WHAT.items()
    for warm in (False, True)
}


def main() -> None:
    name, side = sys.argv[1:]
    X = _rows(name)
    programs = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if side == "ours":
            import freeenergy as fe

            fe.GaussianDensity  # noqa: B018  JAX is imported from here on
            from freeenergy._core import count_compilations

            with count_compilations() as counter:
                CONTESTANTS[name][side](X)
            programs = counter.count
        else:
            CONTESTANTS[name][side](X)
    # since the process began
    print(time.process_time(), time.clock_gettime(time.CLOCK_BOOTTIME) - _started(), programs)


def _started() -> float:
    """When this process began, in seconds since the machine did."""
    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
