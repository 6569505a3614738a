"""Kernel densities of mixed tables, against statsmodels, dense sums and enumeration."""

import itertools

import numpy as np
import polars as pl
import pytest
from scipy import stats
from statsmodels.nonparametric.kernel_density import KDEMultivariate

import freeenergy as fe
from freeenergy.models import MixedKernels

RNG = np.random.default_rng(0)
N = 120
GROUP = RNG.integers(0, 2, N)
GRADES = ["low", "middle", "high"]
FRAME = pl.DataFrame(
    {
        "colour": np.array(["red", "green", "blue"])[np.where(GROUP, 2, RNG.integers(0, 2, N))],
        "size": RNG.normal(3.0 * GROUP, 1.0),
        "visits": RNG.poisson(1 + 5 * GROUP),
        "smokes": RNG.random(N) < 0.2 + 0.6 * GROUP,
        "grade": pl.Series(
            np.array(GRADES)[np.clip(GROUP + RNG.integers(0, 2, N), 0, 2)], dtype=pl.Enum(GRADES)
        ),
    }
)
COLOURS = ["blue", "green", "red"]


SCHEMA = fe.Schema.recognise(FRAME, kinds={"grade": GRADES})


@pytest.fixture(scope="module")
def model():
    return fe.KernelDensity().fit(SCHEMA.rows(FRAME))


def rows(**columns):
    return pl.DataFrame(columns, schema=FRAME.schema, strict=False)


def test_given_bandwidths_are_those_of_statsmodels():
    frame = FRAME.select("size", "colour", "smokes")
    scale = FRAME["size"].std(ddof=0)
    ours = fe.KernelDensity([0.4, 0.3, 0.1]).fit(frame)
    codes = np.column_stack(
        [FRAME["size"], [COLOURS.index(c) for c in FRAME["colour"]], FRAME["smokes"].cast(int)]
    )
    theirs = KDEMultivariate(codes, "cuu", bw=[0.4 * scale, 0.3, 0.1], rng=np.random.default_rng(0))
    np.testing.assert_allclose(np.exp(ours.score_samples(frame)), theirs.pdf(codes), rtol=1e-9)
    np.testing.assert_allclose(ours.bandwidth_, [0.4 * scale, 0.3, 0.1])
    assert ours.evidence(frame).kind is fe.Kind.EXACT


def dense(model, frame, centres, weight=None):
    """The density by a sum over all rows, each kernel written out."""
    h, counts = model.bandwidth_, np.arange(200)
    total = np.zeros(len(frame))
    weight = np.ones(len(centres)) if weight is None else weight
    for c, w in zip(centres.iter_rows(named=True), weight, strict=True):
        p = np.full(len(frame), w / weight.sum())
        same = np.array([x == c["colour"] for x in frame["colour"]])
        p *= np.where(same, 1 - h[0], h[0] / 2)
        p *= stats.norm.pdf(frame["size"].to_numpy(), c["size"], h[1])
        near = h[2] ** np.abs(counts - c["visits"])
        p *= near[frame["visits"].to_numpy()] / near.sum()
        p *= np.where(frame["smokes"].to_numpy() == c["smokes"], 1 - h[3], h[3])
        grade = h[4] ** np.abs(np.arange(3) - GRADES.index(c["grade"]))
        p *= np.array([grade[GRADES.index(g)] for g in frame["grade"]]) / grade.sum()
        total += p
    return np.log(total)


def test_the_density_is_a_sum_over_rows(model):
    np.testing.assert_allclose(model.score_samples(FRAME[:20]), dense(model, FRAME[:20], FRAME), rtol=1e-8)
    weight = np.arange(N) % 3
    weighted = fe.KernelDensity(model.bandwidth_ / [1, FRAME["size"].std(ddof=0), 1, 1, 1]).fit(
        SCHEMA.rows(FRAME), sample_weight=weight
    )
    found = weighted.score_samples(FRAME[:20])
    np.testing.assert_allclose(found, dense(weighted, FRAME[:20], FRAME, weight), rtol=1e-8)


def test_bandwidths_have_the_best_left_out_likelihood(model):
    scale = np.array([1, FRAME["size"].std(ddof=0), 1, 1, 1])

    best = model.bandwidth_ / scale
    assert model.converged_
    assert (np.diff(model.history_["objective"]) < 1).all()
    objective = min(model.history_["objective"])
    # a tenth more or less of any of them is no better, over all rows
    for column in range(5):
        for factor in (0.9, 1.1):
            other = best.copy()
            other[column] = min(
                other[column] * factor, 0.66 if column == 0 else 0.49 if column == 3 else 0.998
            )
            # none is less than that of one imagined row
            if column == 1 or best[column] > 0.02:
                assert left_out(other) >= objective - 1e-6
    assert left_out(best) == pytest.approx(objective, abs=1e-6)


def left_out(bandwidth):
    """−L per row by leaving each row out of a sum over all others."""
    own = fe.KernelDensity(bandwidth.tolist()).fit(SCHEMA.rows(FRAME))
    whole, scale = np.exp(own.score_samples(FRAME)), own.bandwidth_[1]
    h = own.bandwidth_
    mine = (1 - h[0]) / np.sqrt(2 * np.pi) / scale * (1 - h[3])
    counts = np.arange(200)
    visits = np.array([1 / (h[2] ** np.abs(counts - v)).sum() for v in FRAME["visits"]])
    grades = np.array([1 / (h[4] ** np.abs(np.arange(3) - GRADES.index(g))).sum() for g in FRAME["grade"]])
    return -np.log((N * whole - mine * visits * grades) / (N - 1)).mean()


def test_masses_sum_to_one_and_missing_entries_are_summed_out(model):
    cells = list(itertools.product(COLOURS, range(120), [False, True], GRADES))
    colour, visits, smokes, grade = zip(*cells, strict=True)
    size = [1.0] * len(cells)
    each = model.score_samples(rows(colour=colour, size=size, visits=visits, smokes=smokes, grade=grade))
    alone = model.score_samples(rows(colour=[None], size=[1.0], visits=[None], smokes=[None], grade=[None]))
    assert np.logaddexp.reduce(each) == pytest.approx(alone[0], abs=1e-9)
    nothing = rows(**{c: [None] for c in FRAME.columns})
    assert model.score_samples(nothing)[0] == pytest.approx(0, abs=1e-12)


def test_rows_with_missing_entries_are_fitted(tmp_path):
    holes = FRAME.with_columns(
        pl.when(pl.int_range(N) % 3 == k).then(None).otherwise(pl.col(c)).alias(c)
        for k, c in enumerate(["colour", "visits", "size"])
    )
    own = fe.KernelDensity().fit(holes)
    # the shares of a column are those of the rows that have it
    mass = [
        np.exp(own.score_samples(rows(**{c: [k if c == "colour" else None] for c in FRAME.columns})))[0]
        for k in COLOURS
    ]
    assert sum(mass) == pytest.approx(1, abs=1e-9)
    seen = holes["colour"].drop_nulls().to_list()
    share = own.bandwidth_[0]
    expected = [
        seen.count(c) / len(seen) * (1 - share) + (1 - seen.count(c) / len(seen)) * share / 2
        for c in COLOURS
    ]
    np.testing.assert_allclose(mass, expected, rtol=1e-9)
    # a file of it is read again
    own.save(tmp_path / "own.safetensors")
    np.testing.assert_array_equal(
        fe.load(tmp_path / "own.safetensors").score_samples(holes), own.score_samples(holes)
    )
    counts = np.exp(
        own.score_samples(rows(**{c: range(200) if c == "visits" else [None] * 200 for c in FRAME.columns}))
    )
    assert counts.sum() == pytest.approx(1, abs=1e-9)
    draws = own.sample(3000, random_state=0)
    p = mass[0]
    assert abs((draws["colour"] == COLOURS[0]).mean() - p) < 5 * np.sqrt(p * (1 - p) / 3000)
    mean = counts @ np.arange(200)
    visits = draws["visits"].to_numpy()
    assert abs(visits.mean() - mean) < 5 * visits.std() / np.sqrt(3000)
    filled = own.impute(holes)
    assert filled.null_count().sum_horizontal()[0] == 0


def test_draws_follow_the_density_and_have_the_types_of_the_table(model):
    draws = model.sample(4000, random_state=1)
    assert draws.schema == FRAME.schema
    for (colour, grade), part in draws.group_by(["colour", "grade"]):
        known = {"colour": [colour], "grade": [grade]}
        p = np.exp(model.score_samples(rows(**{c: known.get(c, [None]) for c in FRAME.columns})))[0]
        assert abs(len(part) / 4000 - p) < 5 * np.sqrt(p * (1 - p) / 4000)
    known = {"visits": range(80), "smokes": [True] * 80}
    masses = np.exp(model.score_samples(rows(**{c: known.get(c, [None] * 80) for c in FRAME.columns})))
    given = rows(**{c: [True if c == "smokes" else None] for c in FRAME.columns})
    drawn = np.array([part["visits"][0] for part in model.sample(400, given=given, random_state=0)])
    mean = masses @ np.arange(80) / masses.sum()
    assert abs(drawn.mean() - mean) < 5 * drawn.std() / np.sqrt(400)
    assert model.impute(given)["visits"][0] == np.rint(mean)


def test_labels_alone_leave_one_row_out_at_a_time():
    frame = FRAME.select("colour", "smokes")
    own = fe.KernelDensity().fit(frame)
    # some two hundred rows for each cell: hardly anything is smoothed, and nothing impossible
    assert (own.bandwidth_ < 0.4).all()
    cells = pl.DataFrame(list(itertools.product(COLOURS, [False, True])), schema=frame.schema, orient="row")
    assert np.exp(own.score_samples(cells)).sum() == pytest.approx(1, abs=1e-9)
    weight = np.arange(N) % 3
    weighted = fe.KernelDensity().fit(frame, sample_weight=weight)
    again = fe.KernelDensity().fit(frame[np.repeat(np.arange(N), weight)])
    np.testing.assert_allclose(weighted.score_samples(cells), again.score_samples(cells), atol=1e-6)


def test_frames_of_numbers_have_the_kernels_they_had():
    plain = FRAME.select("size", pl.col("visits").cast(float))
    own = fe.KernelDensity().fit(plain)
    assert type(own.model_).__name__ == "Kernels"
    assert isinstance(fe.KernelDensity().fit(FRAME).model_, MixedKernels)


def test_wrong_bandwidths_are_refused():
    with pytest.raises(
        ValueError, match=r"must be one positive number, or 5 of them, less than 1 for labels"
    ):
        fe.KernelDensity([0.1, 0.2]).fit(FRAME)
    with pytest.raises(ValueError, match=r"and than \(K − 1\)/K for K other labels"):
        fe.KernelDensity([0.9, 0.2, 0.2, 0.2, 0.2]).fit(FRAME)
