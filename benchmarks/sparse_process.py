from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

import freeenergy as fe
from freeenergy import kernels

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
    kernel = 1.0 * kernels.RBF(np.ones(COLUMNS))  # pyright: ignore[reportArgumentType]
    model = fe.GaussianProcess(
        kernel, inducing=X[:POINTS].copy(), batch_size=BATCH, max_iter=1, standardise=False
    )

    def ours() -> float:
        with warnings.catch_warnings():
            # one epoch is not all
            warnings.simplefilter("ignore")
            return model.fit(X, y).log_evidence_ / len(y)

    def judge(a: float, b: float) -> tuple[bool, str]:
        return a > b, f"bound of {a:.3f} nats a row after the epoch, {b:.3f} on average during theirs"

    return race(ours, gpytorch_epoch(X, y), judge, repeats=3)


WORKLOAD = Workload(
    f"sparse Gaussian process, 100,000 × {COLUMNS}, {POINTS} points, an epoch of batches of {BATCH}",
    "GPyTorch",
    1.5,
    run,
)
