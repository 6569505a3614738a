"""AIC and BIC of a comparison, and series models of counts and of real numbers on one scale."""

import json

import numpy as np
import pytest
from data import ROWS
from scipy import stats
from sklearn.neighbors import KernelDensity

import freeenergy as fe
from freeenergy import distributions as d
from freeenergy.cli import run

COUNTS = np.random.default_rng(0).poisson(np.repeat([3.0, 12.0, 3.0, 12.0], 30))[:, None].astype(float)


# ---------------------------------------------------------------------------------------------
# criteria
# ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def board():
    models = {
        "one": fe.GaussianDensity(),
        "two": fe.GaussianMixture(2),
        "kernel": fe.KernelDensity(),
        "other": KernelDensity(),
    }
    return fe.compare(models, ROWS, cv=2, random_state=0, criteria=True)


def test_criteria_are_of_the_fit_to_all_rows(board):
    lines = {line.model: line for line in board.table()}
    nats = stats.multivariate_normal(ROWS.mean(axis=0), np.cov(ROWS.T, bias=True)).logpdf(ROWS).sum()
    np.testing.assert_allclose(lines["one"].aic, 2 * 5 - 2 * nats)
    np.testing.assert_allclose(lines["one"].bic, 5 * np.log(120) - 2 * nats)
    fitted = board.fit_all("two")
    np.testing.assert_allclose(lines["two"].aic, fitted.summary().aic)
    np.testing.assert_allclose(fitted.criteria(ROWS), [lines["two"].aic, lines["two"].bic])
    # nothing was maximised, or nothing is known of it
    for name in ("kernel", "other"):
        assert lines[name].aic is None
        assert lines[name].bic is None
    assert fe.KernelDensity().fit(ROWS).criteria(ROWS) is None


def test_criteria_are_shown_where_they_were_asked_for(board):
    text = str(board)
    assert "AIC" in text
    assert f"{board.criteria['one'][0]:,.1f}" in text
    assert "AIC and BIC are of the fit to all rows" in text
    assert "BIC" in board._repr_html_()
    assert board.to_json()["table"][0]["aic"] is not None
    plain = fe.compare({"one": fe.GaussianDensity()}, ROWS, cv=2, random_state=0)
    assert "AIC" not in str(plain)
    assert "AIC" not in plain._repr_html_()
    assert plain.criteria is None
    # the winner is not fitted twice
    assert board._best is board.best_estimator


def test_a_mass_and_a_density_are_not_compared_by_them():
    """On whole numbers continuous models have noise, whose likelihood is none that was maximised."""
    found = fe.compare(
        {"counts": fe.Mixture(1, d.Poisson), "numbers": fe.GaussianDensity()},
        COUNTS,
        cv=2,
        random_state=0,
        criteria=True,
    )
    lines = {line.model: line for line in found.table()}
    nats = stats.poisson(COUNTS.mean()).logpmf(COUNTS).sum()
    np.testing.assert_allclose(lines["counts"].aic, 2 - 2 * nats)
    assert lines["numbers"].aic is None


def test_the_command_line_has_them(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    np.savetxt(path, ROWS, delimiter=",", header="a,b", comments="")
    words = ["compare", str(path), "-m", "gaussian-density", "--cv", "2", "--seed", "0", "-q", "--json"]
    assert run([*words, "--criteria"]) == 0
    found = json.loads(capsys.readouterr().out)["table"][0]
    nats = stats.multivariate_normal(ROWS.mean(axis=0), np.cov(ROWS.T, bias=True)).logpdf(ROWS).sum()
    np.testing.assert_allclose(found["aic"], 10 - 2 * nats)


# ---------------------------------------------------------------------------------------------
# whole numbers
# ---------------------------------------------------------------------------------------------


def test_the_mass_of_a_cell_is_the_integral_of_the_law_of_a_step():
    model = fe.AutoRegression(1).fit(COUNTS)
    phi, mean = model.coefficients_[0, 0, 0], COUNTS.mean()
    sigma = np.sqrt(model.noise_covariance_[0, 0])
    offset = np.asarray(model.model_.offset)[0] * model.scaling_.scale[0]
    offset += model.scaling_.shift[0] * (1 - phi)
    law = stats.norm(offset + phi * COUNTS[:-1, 0], sigma)
    expected = np.log(law.cdf(COUNTS[1:, 0] + 0.5) - law.cdf(COUNTS[1:, 0] - 0.5))
    found = model.cell_evidence(COUNTS)
    np.testing.assert_allclose(found[1:], expected, rtol=1e-9)
    # all whole numbers at the last step, given the others: sum one
    every = [np.concatenate([COUNTS[:-1], [[k]]]) for k in range(-60, 90)]
    last = model.cell_evidence(every).reshape(150, -1)[:, -1]
    np.testing.assert_allclose(np.exp(last).sum(), 1.0, rtol=1e-9)
    # what is missing counts nothing
    holes = COUNTS.copy()
    holes[5] = np.nan
    assert model.cell_evidence(holes)[5] == 0.0
    assert abs(mean - model.forecast(COUNTS, 200).mean[-1, 0]) < 1.0


def test_a_hidden_chain_has_masses_too():
    model = fe.HMM(2, random_state=0).fit(COUNTS)
    belief, logs, transition = [model.initial_], [], model.transition_
    laws = stats.norm(model.means_[:, 0], np.sqrt(model.covariances_[:, 0, 0]))
    for x in COUNTS[:, 0]:
        logs.append(np.log(belief[-1] @ (laws.cdf(x + 0.5) - laws.cdf(x - 0.5))))
        now = belief[-1] * laws.pdf(x)
        belief.append(now / now.sum() @ transition)
    np.testing.assert_allclose(model.cell_evidence(COUNTS), logs, rtol=1e-8)
    with pytest.raises(
        ValueError, match=r"HMM\.cell_evidence has no answer: it needs series of one column"
    ):
        fe.HMM(2, d.Poisson, random_state=0).fit(COUNTS[:60]).cell_evidence(COUNTS)
    two = np.column_stack([COUNTS, COUNTS[::-1]])
    with pytest.raises(ValueError, match="it needs series of one column"):
        fe.AutoRegression(1).fit(two[:60]).cell_evidence(two)


def test_models_of_counts_and_of_numbers_stand_on_one_board():
    models = {
        "chain": fe.HMM(2, d.Poisson),
        "line": fe.AutoRegression(1),
        "rows": fe.GaussianDensity(),
    }
    board = fe.compare(models, COUNTS, cv=2, random_state=0)
    assert all(line.error is None for line in board.table())
    assert any("of the cell of width one" in note for note in board.notes)
    # by hand, of the last fold
    result = next(r for r in board.results if r.model == "line" and r.fold == 1)
    fitted = fe.AutoRegression(1).fit(COUNTS[: result.rows[0]])
    np.testing.assert_allclose(result.nats, fitted.cell_evidence(COUNTS)[result.rows], rtol=1e-9)
    # the law of the data is best, and no mass is above one
    assert board.table()[0].model == "chain"
    assert all((r.nats <= 0).all() for r in board.results)
    # several series, whole ones held out
    parts = [COUNTS[k * 30 : k * 30 + 30] for k in range(4)]
    several = fe.compare({name: models[name] for name in ("chain", "line")}, parts, cv=2, random_state=0)
    assert all(line.error is None for line in several.table())
    result = next(r for r in several.results if r.model == "line")
    train = [parts[i] for i in range(4) if i not in result.rows]
    fitted = fe.AutoRegression(1).fit(train)
    expected = [fitted.cell_evidence(parts[i]).sum() for i in result.rows]
    np.testing.assert_allclose(result.nats, expected, rtol=1e-9)


def test_several_columns_have_no_common_unit():
    two = np.column_stack([COUNTS, COUNTS[::-1]])
    board = fe.compare(
        {"chain": fe.HMM(2, d.Poisson), "line": fe.AutoRegression(1)}, two, cv=2, random_state=0
    )
    failed = next(line for line in board.table() if line.model == "line")
    assert "no common unit" in failed.error
