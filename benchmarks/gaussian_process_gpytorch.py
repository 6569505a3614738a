from __future__ import annotations

import numpy as np

import freeenergy as fe
from freeenergy import kernels

from ._race import Outcome, Workload, race
from .gaussian_process import COLUMNS, EVALUATIONS, table, thetas


def run(quick: bool) -> Outcome:
    import gpytorch
    import torch

    X, y = table(300 if quick else 2_000)
    asked = thetas(3 if quick else EVALUATIONS)
    kernel = 1.0 * kernels.RBF(np.ones(COLUMNS))  # pyright: ignore[reportArgumentType]
    ours = fe.GaussianProcess(kernel, noise=0.1, standardise=False, learn=False).fit(X, y)

    class Peer(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel(ard_num_dims=COLUMNS)
            )

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    peer = Peer(torch.from_numpy(X), torch.from_numpy(y), likelihood).double()
    peer.train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, peer)

    def theirs() -> list[float]:
        values = []
        # exact, as ours is; its own default estimates the determinant of more than 800 rows
        with gpytorch.settings.max_cholesky_size(10_000):
            for theta in asked:
                peer.covar_module.base_kernel.lengthscale = np.exp(theta[:COLUMNS])
                peer.covar_module.outputscale = np.exp(theta[COLUMNS])
                likelihood.noise = np.exp(theta[COLUMNS + 1])
                peer.zero_grad()
                value = objective(peer(*peer.train_inputs), peer.train_targets)
                value.backward()
                values.append(float(value.detach()) * len(y))
        return values

    def judge(a: list, b: list[float]) -> tuple[bool, str]:
        gap = max(abs(x[0] - z) for x, z in zip(a, b, strict=True))
        return gap < 1e-3, f"evidence within {gap:.0e}"

    return race(
        lambda: [ours.log_marginal_likelihood(theta, eval_gradient=True) for theta in asked],
        theirs,
        judge,
        repeats=1,
    )


WORKLOAD = Workload(
    f"Gaussian process, 2,000 × {COLUMNS}, a length each, {EVALUATIONS} evaluations of evidence and slope",
    "GPyTorch",
    1,
    run,
)
