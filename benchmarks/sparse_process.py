from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freeenergy import kernels
from freeenergy.estimators.labelled._exact_process import Evidences
from freeenergy.estimators.labelled._kernelled import LogParameters
from freeenergy.estimators.labelled._sparse_process import Bounds

from ._race import Outcome, Workload, race
from .gaussian_process import COLUMNS, table

POINTS, BATCH = 200, 1024


def gpytorch_epoch(X: np.ndarray, y: np.ndarray) -> Callable[[], float]:
    """An epoch of GPyTorch, and the mean of its bound during it."""
    import gpytorch
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Peer(gpytorch.models.ApproximateGP):
        def __init__(self, points) -> None:
            law = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, law))
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel(ard_num_dims=COLUMNS)
            )

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x, answers = (torch.from_numpy(a.astype(np.float32)) for a in (X, y))
    loader = DataLoader(TensorDataset(x, answers), batch_size=BATCH, shuffle=True)

    def theirs() -> float:
        torch.manual_seed(0)
        peer, likelihood = Peer(x[:POINTS].clone()), gpytorch.likelihoods.GaussianLikelihood()
        objective = gpytorch.mlls.VariationalELBO(likelihood, peer, num_data=len(y))
        optimiser = torch.optim.Adam([*peer.parameters(), *likelihood.parameters()], lr=0.01)
        total = 0.0
        for rows, own in loader:
            optimiser.zero_grad()
            loss = -objective(peer(rows), own)
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) * len(own)
        return -total / len(y)

    return theirs


def run(quick: bool) -> Outcome:
    X, y = table(5_000 if quick else 100_000)
    kernel = LogParameters.of(1.0 * kernels.RBF(np.ones(COLUMNS)))  # pyright: ignore[reportArgumentType]
    bounds = Bounds(Evidences(kernel, X, y[:, None], np.ones((len(y), 1))), X[:POINTS].copy())
    theta = np.concatenate([kernel.vector, np.log([0.1])])

    def judge(a: tuple, b: float) -> tuple[bool, str]:
        ours = a[0] / len(y)
        return ours > b, f"bound of {ours:.3f} nats a row after the pass, {b:.3f} on average during theirs"

    return race(lambda: bounds.bound(theta, bounds.points), gpytorch_epoch(X, y), judge, repeats=3)


WORKLOAD = Workload(
    f"sparse Gaussian process, 100,000 × {COLUMNS}, {POINTS} points, one pass with all slopes",
    "GPyTorch",
    1.5,
    run,
)
