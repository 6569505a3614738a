"""Data sets with known truth, and tables read from files of every kind, good and bad."""

import bz2
import csv
import datetime
import gzip
import io
import os
import socket
import sys
import zipfile

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from scipy import integrate, stats

from freeenergy import datasets
from freeenergy.datasets import (
    DataKind,
    Dataset,
    Table,
    checkerboard,
    gaussian_clusters,
    gaussian_ring,
    load,
    poisson_clusters,
    read_table,
    regimes,
    seasons,
    spirals,
    two_moons,
)


def table(content: str | bytes, **options) -> Table:
    return read_table(io.BytesIO(content.encode() if isinstance(content, str) else content), **options)


# ---------------------------------------------------------------------------------------------
# by name
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in datasets.names() if name != "fashion-mnist"])
def test_every_named_data_set_is_whole(name):
    data = load(name)
    assert isinstance(data, Dataset)
    assert np.isfinite(data.X).all()
    assert data.X.dtype == float
    assert len(data.feature_names) == data.X.shape[1]
    assert data.y is not None
    assert len(data.y) == len(data.X)
    assert data.description.endswith(".")
    if data.y.dtype.kind == "i" and data.y.ndim == 1:
        assert sorted(set(data.y.tolist())) == list(range(len(data.target_names)))
    np.testing.assert_array_equal(load(name).X, data.X)


def test_digits_are_images_of_whole_numbers_in_the_units_of_the_source():
    data = load("digits")
    assert data.kind is DataKind.IMAGES
    assert data.X.shape == (1797, 64)
    assert set(np.unique(data.X)) == set(range(17))
    assert load("diabetes").X[:, 0].max() > 70  # years, not standardised


def test_the_regimes_and_the_level_of_the_series_are_those_that_made_them():
    data = regimes(4000)
    assert data.kind is DataKind.SERIES
    stays = np.mean(data.y[1:] == data.y[:-1])
    assert abs(stays - 0.96) < 5 * np.sqrt(0.96 * 0.04 / 3999)
    spread = [data.X[data.y == k].std(axis=0) for k in range(3)]
    np.testing.assert_allclose(spread, [[0.7] * 2, [1.2] * 2, [2.2] * 2], rtol=0.1)
    data = seasons(1200)
    rest = (data.X[:, 0] - data.y).reshape(-1, 12)
    # the season of a month, known to 1/√100
    np.testing.assert_allclose(rest.mean(axis=0)[[0, 6, 11]], [-6, 7, -6], atol=0.5)
    assert abs(rest.std(axis=0).mean() - 1) < 0.1


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(ValueError, match=r"^There is no data set 'digit'. Did you mean 'digits'\?$"):
        load("digit")
    with pytest.raises(
        ValueError, match=r"There is no data set 'zzz'. There are breast-cancer, checkerboard, diabetes, "
    ):
        load("zzz")


def test_images_of_clothes_come_from_the_files_of_a_package(tmp_path):
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(256, size=(5, 784)).astype(np.uint8), np.arange(5, dtype=np.uint8)
    for name, head, values in (("images-idx3", 16, pixels), ("labels-idx1", 8, labels)):
        with gzip.open(tmp_path / f"train-{name}-ubyte.gz", "wb") as file:
            file.write(bytes(head) + values.tobytes())
    data = datasets.fashion_mnist(folder=tmp_path)
    assert data.kind is DataKind.IMAGES
    assert len(data.feature_names) == 784
    np.testing.assert_array_equal(data.X, pixels)
    assert [data.target_names[label] for label in data.y[:2]] == ["T-shirt", "trouser"]
    with pytest.raises(FileNotFoundError, match="Install Debian's package dataset-fashion-mnist"):
        datasets.fashion_mnist(test=True, folder=tmp_path)


def test_the_law_of_clusters_is_a_mixture_of_normal_laws():
    data = gaussian_clusters(4000, columns=3, components=2, seed=3)
    assert data.X.shape == (4000, 3)
    grid = np.linspace(-9, 9, 60)
    points = np.stack(np.meshgrid(grid, grid, grid), axis=-1).reshape(-1, 3)
    p, cell = np.exp(data.log_density(points)), (grid[1] - grid[0]) ** 3
    assert p.sum() * cell == pytest.approx(1, abs=1e-3)
    drawn = data.log_density(data.X)
    entropy = -np.sum(p * np.log(np.where(p > 0, p, 1))) * cell
    assert abs(drawn.mean() + entropy) < 4 * stats.sem(drawn)
    # another seed draws other rows of the same law
    other = gaussian_clusters(4000, columns=3, components=2, seed=4)
    np.testing.assert_array_equal(other.log_density(points[:9]), data.log_density(points[:9]))


@pytest.mark.parametrize("make", [two_moons, spirals, gaussian_ring, checkerboard])
def test_the_true_density_integrates_to_one_and_fits_the_draws(make):
    data = make(4000, seed=3)
    # (no square of the board is cut)
    grid = np.arange(-4.5, 4.5, 0.0625) + 0.03125
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    p = np.exp(np.concatenate([data.log_density(part) for part in np.array_split(points, 10)]))
    cell = (grid[1] - grid[0]) ** 2
    assert p.sum() * cell == pytest.approx(1, abs=1e-4)
    # the mean log-density of draws is minus the entropy, within the standard error
    drawn = data.log_density(data.X)
    entropy = -np.sum(p * np.log(np.where(p > 0, p, 1))) * cell
    assert abs(drawn.mean() + entropy) < 4 * stats.sem(drawn) + 1e-9


def test_a_point_of_the_moons_by_quadrature():
    moons = two_moons(2, noise=0.3)
    x = np.array([0.2, 0.4])

    def joint(t):
        upper = np.array([np.cos(np.pi * t), np.sin(np.pi * t)])
        normal = stats.multivariate_normal([0, 0], 0.09)
        return 0.5 * (normal.pdf(x - upper) + normal.pdf(x - (np.array([1, 0.5]) - upper)))

    assert moons.log_density(x[None])[0] == pytest.approx(np.log(integrate.quad(joint, 0, 1)[0]), rel=1e-9)


def test_the_true_probabilities_of_counts_sum_to_one():
    data = poisson_clusters(2000)
    rows = np.stack(np.meshgrid(*[np.arange(top) for top in (12, 16, 14, 9, 14)], indexing="ij"), -1)
    total = np.exp(data.log_density(rows.reshape(-1, 5))).sum()
    outside = np.mean((data.X >= [12, 16, 14, 9, 14]).any(axis=1))
    assert total == pytest.approx(1 - outside, abs=4 * np.sqrt(outside / 2000))


# ---------------------------------------------------------------------------------------------
# tables that are as they should be
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names", "values"),
    [
        ("a,b\n1,2\n3,4\n", ["a", "b"], [[1, 2], [3, 4]]),
        ("a;b\n1;2\n3;4", ["a", "b"], [[1, 2], [3, 4]]),
        ("a\tb\r\n1\t2\r\n3\t4\r\n", ["a", "b"], [[1, 2], [3, 4]]),
        ("a|b\n1|2\n", ["a", "b"], [[1, 2]]),
        ("1,2\n3,4\n", ["x0", "x1"], [[1, 2], [3, 4]]),
        ("1\n2\n", ["x0"], [[1], [2]]),
        ("b\n1\n", ["b"], [[1]]),
        ('"a, b","c"\n"1","2"\n', ["a, b", "c"], [[1, 2]]),
        ('"say ""x""",c\n1,2\n', ['say "x"', "c"], [[1, 2]]),
        ('"two\nlines",c\n1,2\n', ["two\nlines", "c"], [[1, 2]]),
        (" a , b \n 1 , 2 \n", ["a", "b"], [[1, 2]]),
        ("\ufeffa,b\n1,2\n", ["a", "b"], [[1, 2]]),
        ("a,a,,a_2\n1,2,3,4\n", ["a", "a_3", "x2", "a_2"], [[1, 2, 3, 4]]),
        ("a,b\n1,2\n\n3,4\n\n", ["a", "b"], [[1, 2], [3, 4]]),
        ("a\n\n1\n\n2\n", ["a"], [[1], [2]]),
        ("a,b\n1e3,-.5\n+2.,1E-3\n", ["a", "b"], [[1000, -0.5], [2, 0.001]]),
        ("ok,no\ntrue,False\nFALSE,\n", ["ok", "no"], [[1, 0], [0, np.nan]]),
        ("1,2\nNA,4\n", ["x0", "x1"], [[1, 2], [np.nan, 4]]),
        ("day,x\n1970-01-02,1\n,2\n1971-01-01,3\n", ["day", "x"], [[1, 1], [np.nan, 2], [365, 3]]),
        ("at\n1970-01-01T12:00:00\n1970-01-02 18:00:00\n", ["at"], [[0.5], [1.75]]),
        ("größe,重さ\n1,2\n", ["größe", "重さ"], [[1, 2]]),
        ("a,b\n,\n1,2\n", ["a", "b"], [[np.nan, np.nan], [1, 2]]),
        ("a,b\n1,\n2,\n", ["a", "b"], [[1, np.nan], [2, np.nan]]),
    ],
)
def test_csv_is_read(text, names, values):
    found = table(text)
    assert found.names == names
    np.testing.assert_array_equal(found.values, np.array(values, float))


@pytest.mark.parametrize(
    "marker", ["", "NA", "N/A", "nan", "NaN", "NULL", "None", "?", "-", ".", " ", "#N/A"]
)
def test_markers_of_missing_values(marker):
    np.testing.assert_array_equal(table(f"a,b\n1,2\n{marker},4\n").values, [[1, 2], [np.nan, 4]])


def test_the_header_can_be_said():
    assert table("2019,2020\n1,2\n").values.shape == (2, 2)
    years = table("2019,2020\n1,2\n", header=True)
    assert years.names == ["2019", "2020"]
    assert years.values.tolist() == [[1, 2]]
    assert table("a,1\nb,2\n", header=False, drop=["x0"]).values.tolist() == [[1], [2]]


def test_columns_apart_dropped_and_encoded():
    text = "kind,size,who,x\ncat,1,ann,5\ndog,2,bob,6\n NA,3,ann,7\n"
    found = table(text, apart=["who", "x"], encode=["kind"])
    assert found.names == ["kind=cat", "kind=dog", "size"]
    np.testing.assert_array_equal(found.values, [[1, 0, 1], [0, 1, 2], [np.nan, np.nan, 3]])
    assert found.apart["who"].tolist() == ["ann", "bob", "ann"]
    assert found.apart["x"].tolist() == [5, 6, 7]
    assert table(text, drop=["kind", "who"]).names == ["size", "x"]
    encoded = table("a,b\n1,2\n3,4\n", encode=["a"])
    assert encoded.names == ["a=1", "a=3", "b"]


def test_parquet_of_every_kind_of_column(tmp_path):
    day = datetime.date(1970, 1, 11)
    frame = pl.DataFrame(
        {
            "whole": [1, None, 3],
            "real": [0.5, float("nan"), 2.5],
            "truth": [True, False, None],
            "day": [day, None, day],
            "lasts": [datetime.timedelta(minutes=1), None, datetime.timedelta(0)],
            "label": pl.Series(["u", "v", None], dtype=pl.Categorical),
        }
    )
    path = tmp_path / "table.parquet"
    frame.write_parquet(path)
    nan = np.nan
    expected = [[1, 0.5, 1, 10, 60, 1, 0], [nan, nan, 0, nan, nan, 0, 1], [3, 2.5, nan, 10, 0, nan, nan]]
    found = read_table(path, encode=["label"])
    assert found.names == ["whole", "real", "truth", "day", "lasts", "label=u", "label=v"]
    np.testing.assert_array_equal(found.values, expected)
    with pytest.raises(ValueError, match=r"^Column 'label' is text, such as 'u'"):
        _ = read_table(path).values
    # what is no number has its own type, and the library says what it is taken for
    assert read_table(path).frame.schema == frame.with_columns(pl.col("real").fill_nan(None)).schema


def test_numpy_files(tmp_path):
    values = np.arange(6.0).reshape(3, 2)
    np.save(tmp_path / "a.npy", values.astype(np.float32))
    np.testing.assert_array_equal(read_table(tmp_path / "a.npy").values, values)
    np.save(tmp_path / "a.npy", np.array([True, False]))
    assert read_table(tmp_path / "a.npy").values.tolist() == [[1.0], [0.0]]
    np.savez(tmp_path / "b.npz", first=values, second=np.ones((2, 1)))
    np.testing.assert_array_equal(read_table(tmp_path / "b.npz").values, values)
    assert read_table(tmp_path / "b.npz", array="second").values.tolist() == [[1], [1]]
    record = np.array([(1, 2.5), (3, 4.5)], dtype=[("u", int), ("v", float)])
    np.save(tmp_path / "c.npy", record)
    assert read_table(tmp_path / "c.npy").names == ["u", "v"]
    assert read_table(tmp_path / "c.npy", drop=["u"]).values.tolist() == [[2.5], [4.5]]
    np.save(tmp_path / "d.npy", np.ones((4, 5, 2)))
    assert read_table(tmp_path / "d.npy").values.shape == (4, 5, 2)
    # what a file is, its bytes tell, not its name
    (tmp_path / "e.csv").write_bytes((tmp_path / "d.npy").read_bytes())
    assert read_table(tmp_path / "e.csv").values.shape == (4, 5, 2)


def test_one_reading_of_a_million_numbers_is_exact():
    values = np.random.default_rng(0).normal(size=(2000, 5))
    text = "\n".join(",".join(map(repr, row)) for row in values.tolist())
    np.testing.assert_array_equal(table(text).values, values)


# ---------------------------------------------------------------------------------------------
# tables that are not: one sentence each
# ---------------------------------------------------------------------------------------------

ENCODE = "or make a column of 0 and 1 for each of its labels (--encode kind)."


def _pickled() -> bytes:
    out = io.BytesIO()
    np.save(out, np.array([{"a": 1}], object), allow_pickle=True)
    return out.getvalue()


def _saved(array, save=np.save) -> bytes:
    out = io.BytesIO()
    save(out, array)
    return out.getvalue()


def _zip(**parts: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def _parquet() -> bytes:
    out = io.BytesIO()
    pl.DataFrame({"a": [1, 2, 3]}).write_parquet(out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "The input is empty."),
        (b" \r\n\n", "The input is empty."),
        (b"a,b\n", "The input has a header and no rows."),
        (b"a,b\n1,2\n3\n", "Line 3 of the input has 1 values where the first has 2."),
        (b"a,b\n1,2\n3,4,5\n", "Line 3 of the input has 3 values where the first has 2."),
        (b'a,b\n1,"2\n3,4\n', "The input cannot be read as CSV: line 3, unexpected end of data."),
        (b"kind,x\ncat,1\n", f"Column 'kind' is text, such as 'cat'. Leave it out (--drop kind) {ENCODE}"),
        (b"kind,x\n1_000,2\n", "Column 'kind' is text, such as '1_000'."),
        (b"day\n02/03/2020\n", "Column 'day' is text, such as '02/03/2020'."),
        (b"kind\n" + b"x" * 99 + b"\n", "such as '" + "x" * 30 + "…'."),
        (b"a\n\x81\n", "The input is not UTF-8 text: line 2 cannot be read. Save it as UTF-8, or name its"),
        (
            bytes(range(256)),
            "The input is not a table: it is neither text (CSV, JSON lines) nor Parquet, Arrow,",
        ),
        ("a,b\n1,2\n".encode("utf-16-le"), "Save a text as UTF-8."),
        (_pickled(), "cannot be read as NumPy data (it holds Python objects, which could run code)."),
        (_saved(np.array(["a"])), "The input must hold an array of numbers. Got the dtype <U1 instead."),
        (_saved(np.array([1j])), "Got the dtype complex128 instead."),
        (_saved(np.zeros((0, 2))), "an array of rows and columns. Got the shape (0, 2) instead."),
        (_saved(np.array(3.0)), "Got the shape () instead."),
        (_saved(np.zeros((1, 1, 1, 1))), "Got the shape (1, 1, 1, 1) instead."),
        (_saved(np.ones(9))[:-8], "The input cannot be read as NumPy data ("),
        (_saved(np.ones(9))[:20], "The input cannot be read as NumPy data ("),
        (_saved(np.ones(9), np.savez)[:-30], "The input cannot be read as NumPy data ("),
        (_zip(), "cannot be read as NumPy data (it holds no array)."),
        (_zip(readme=b"hello"), "The input"),
        (_parquet()[:-6], "The input is a damaged Parquet file ("),
        (b"PAR1" + bytes(40), "The input is a damaged Parquet file ("),
        (b"ARROW1" + bytes(40), "The input is a damaged Arrow file ("),
        (b'{"a": 1}\n{"a": ', "The input cannot be read as JSON lines ("),
        (b'[{"a": 1}, 3', "The input cannot be read as JSON lines ("),
    ],
)
def test_bad_tables_get_one_sentence(content, sentence):
    with pytest.raises(ValueError, match=r"\.$") as error:
        _ = table(content).values
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


LONG = 60_000


def _long(**late: str) -> tuple[dict[str, list[str]], bytes]:
    """Columns as they are written, with one entry that only a look at every line finds, and their CSV."""
    written = {
        "whole": [str(i % 7) for i in range(LONG)],
        "number": [f"{i / 8}" for i in range(LONG)],
        "code": [f"{i % 30:03d}" for i in range(LONG)],
        "true": ["true" if i % 3 else "false" for i in range(LONG)],
        "hole": ["NA" if i % 5 == 0 else str(i % 11) for i in range(LONG)],
        "nothing": [""] * LONG,
    }
    for name, entry in late.items():
        written[name][LONG // 3 + 77] = entry
    lines = [",".join(written), *map(",".join, zip(*written.values(), strict=True))]
    return written, ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize(
    ("late", "types"),
    [
        ({}, "Int64 Float64 Int64 Boolean Int64 Float64"),
        ({"whole": "2.5"}, "Float64 Float64 Int64 Boolean Int64 Float64"),
        ({"number": "null"}, "Int64 Float64 Int64 Boolean Int64 Float64"),
        ({"number": " nan "}, "Int64 Float64 Int64 Boolean Int64 Float64"),
        ({"true": "perhaps"}, "Int64 Float64 Int64 String Int64 Float64"),
        ({"hole": "n/a"}, "Int64 Float64 Int64 Boolean Int64 Float64"),
        ({"nothing": "3"}, "Int64 Float64 Int64 Boolean Int64 Int64"),
    ],
)
def test_types_are_those_of_all_lines_of_a_long_file_and_not_of_some(late, types):
    written, content = _long(**late)
    read = table(content).frame
    assert [str(kind) for kind in read.dtypes] == types.split()
    for name, entries in written.items():
        words = {"true": True, "false": False}
        known = [None if e.strip() in ("", "NA", "nan", "null", "n/a") else e for e in entries]
        if read[name].dtype.is_numeric():
            expected = [None if e is None else float(e) for e in known]
        else:
            expected = known if read[name].dtype == pl.String else [words[e or ""] for e in known]
        assert read[name].to_list() == expected, name


def test_long_files_keep_what_is_to_be_read_as_it_is_written():
    written, content = _long()
    read = table(content, text=["code"], encode=["hole", "whole"], apart=["number"])
    assert read.frame["code"].to_list() == written["code"]
    assert read.names[:2] == ["whole=0", "whole=1"]
    assert read.frame["hole=3"].to_list() == [None if e == "NA" else e == "3" for e in written["hole"]]
    assert read.apart["number"].tolist() == [float(entry) for entry in written["number"]]


def test_lines_of_a_long_file_that_are_too_long_and_too_short_by_the_same_are_told():
    _, content = _long()
    lines = content.split(b"\n")
    lines[40_000] += b",1"
    lines[40_001] = lines[40_001][:-1]
    with pytest.raises(ValueError, match="Line 40001 of the input has 7 values where the first has 6"):
        table(b"\n".join(lines))


def _gzip(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


@pytest.mark.parametrize(
    ("content", "options", "values"),
    [
        ("a;b\n3,14;2,71\n-1,5e1;,5\n", {"decimal": ","}, [[3.14, 2.71], [-15, 0.5]]),
        ("3,14;2,71\n1,5;2\n", {"decimal": ","}, [[3.14, 2.71], [1.5, 2]]),
        ('a,b\n"3,14","2,71"\n', {"decimal": ","}, [[3.14, 2.71]]),
        ("a,b\n1,2\n".encode("utf-16"), {}, [[1, 2]]),
        ("a,b\n1,2\n".encode("utf-32"), {}, [[1, 2]]),
        (b"\xef\xbb\xbf1,2\n3,4\n", {}, [[1, 2], [3, 4]]),
        (_gzip("a,b\n1,2\n"), {}, [[1, 2]]),
        (_gzip("a,b\n1,2\n") + _gzip("3,4\n"), {}, [[1, 2], [3, 4]]),
        ("a,b\r1,2\r3,4\r", {}, [[1, 2], [3, 4]]),
        ("a,b\r\n1,2\r\n\r\n", {}, [[1, 2]]),
        ("# made by hand, in May, twice\n# again\na,b\n1,2\n# here, too,\n3,4\n", {}, [[1, 2], [3, 4]]),
        ("a,b\n1,2\n   \n3,4\n", {}, [[1, 2], [3, 4]]),
        (",a,b\n0,1,2\n1,3,4\n2,5,6\n", {}, [[1, 2], [3, 4], [5, 6]]),
        ("a,b,\n1,2,\n3,4,\n", {}, [[1, 2], [3, 4]]),
        ("id\tx\n1\t5\n2\t6\n3\t7\n", {}, [[1, 5], [2, 6], [3, 7]]),
        ("größe\n1\n".encode("latin-1"), {}, [[1]]),
        ("größe\n1\n".encode("utf-16-be"), {"encoding": "utf-16-be"}, [[1]]),
        ("a b\n1 2\n", {"separator": " "}, [[1, 2]]),
        ("a^b\n1^2\n", {"separator": "^"}, [[1, 2]]),
        ('{"a": 1, "b": 2.5}\n{"b": 1}\n', {}, [[1, 2.5], [np.nan, 1]]),
        ('[{"a": 1},\n {"a": null}]', {}, [[1], [np.nan]]),
    ],
)
def test_other_writings_of_a_table_give_the_same_numbers(content, options, values):
    np.testing.assert_array_equal(table(content, **options).values, np.array(values, float))


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ("1,2\n3,4\n", "has no header: its first line is of numbers and is taken as a row."),
        ("# made by hand\na,b\n1,2\n", "1 line of the input with # at the start is left out."),
        ("a\n1\n\n3\n", "Empty lines of the input are left out. Write NA where a value is missing."),
        ("a,b\n1,2\n,\n,\n", "The last 2 rows of the input have no value and are taken as not observed."),
        ("a,a\n1,2\n", "has several columns 'a'; the later ones are called a_2."),
        (",a,b\n0,1,2\n1,3,4\n2,5,6\n", "has no name and numbers the rows; it is left out."),
        ("a,b,\n1,2,\n3,4,\n", "The column without a name and without values of the input is left out."),
        ("größe\n1\n".encode("cp1252"), "is not UTF-8 text (line 1) and is read as Windows-1252. Say an"),
        ("id,x\n1,5\n2,6\n3,7\n", "Column 'id' numbers the rows from 1 and is taken as data."),
        (_saved(np.ones(2), lambda f, a: np.savez(f, u=a, v=a)), "holds 'u', 'v'; the first is taken."),
    ],
)
def test_what_could_be_read_otherwise_is_said(content, note):
    (found,) = table(content).notes
    assert note in found


def test_a_plain_table_has_nothing_to_say():
    assert table("a,b\n1,2\n3,4\n\n").notes == ()


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        (
            "5.1,3.5,setosa\n4.9,3.0,setosa\n",
            {},
            "has numbers ('5.1') and words ('setosa'). Say --header if",
        ),
        ("land,2019,2020\nu,1,2\n", {}, "has numbers ('2019') and words ('land'). Say --header if"),
        (
            "Age;b\n3,14;2,71\n",
            {},
            "Row 1 (line 2), column 'Age' of the input has a comma: '3,14'. Say --dec",
        ),
        ('a,b\n1,2\n3,"1,000"\n', {}, "Row 2 (line 3), column 'b' of the input has a comma: '1,000'."),
        ("a;b\n1.234,5;2\n", {"decimal": ","}, "which has another mark in it than the decimal ','."),
        ("a;b\n1.5;2\n", {"decimal": ","}, "is '1.5', which has another mark in it than the decimal ','."),
        ("a\n1'000.5\n2'000\n", {}, "is \"1'000.5\", which has another mark in it than the decimal '.'."),
        ("a\n1\n2\nabc\n4\n", {}, "Row 3 (line 4), column 'a' of the input is no number: 'abc'."),
        ("# x\n\na a,b\n1,2\n2,3\n\nabc,1\n4,4\n", {}, "Row 3 (line 7), column 'a a' of the input is no"),
        ("# x\n\na a,b\n1,2\n2,3\n\nabc,1\n4,4\n", {}, "or leave the column out (--drop 'a a')."),
        (
            "1.0 2.0\n3.0 4.0\n",
            {"header": False},
            "has values with spaces between them, such as '1.0 2.0'.",
        ),
        ("a,b\n3,14,2,71\n", {}, "If commas stand before decimals, separate the values by ; and say"),
        ("a,b\n1,5,6\n2,7,8\n", {}, "If the first of them numbers the rows, give that column a name, too."),
        ("a,a\n1,2\n", {"drop": ["a"]}, "has several columns 'a'. Give each a name of its own."),
        (_zip(**{"[Content_Types].xml": b"", "word/document.xml": b""}), {}, "Save the sheet as CSV."),
        (
            _zip(**{"table.csv": b"a\n1\n"}),
            {},
            "is a zip archive without arrays of NumPy. Unpack the table",
        ),
        (b"\xd0\xcf\x11\xe0" + bytes(99), {}, "The input is an Excel workbook of an old kind. Save it as"),
        (bz2.compress(b"a\n1\n"), {}, "The input is compressed by bzip2. Unpack it first."),
        (_gzip("a\n1\n" * 99)[:-20], {}, "The input is a damaged gzip file"),
        ('{"a": [1, 2]}', {}, "The input is JSON, not a table. Save the table as CSV."),
        ("<table><td>1</table>", {}, "The input is HTML or XML, not a table."),
        ("a\n1\n", {"decimal": ";"}, "The 'decimal' parameter of read_table must be '.' or ','."),
    ],
)
def test_what_has_two_readings_is_refused_with_the_remedy(content, options, sentence):
    with pytest.raises(ValueError, match=r"\.$") as error:
        table(content, **options)
    assert sentence in str(error.value)


@pytest.mark.parametrize("infinite", ["inf", "-inf", "Infinity", "1e999", "-1E400"])
def test_an_infinite_cell_is_refused_by_row_and_column(infinite):
    with pytest.raises(
        ValueError, match=r"^Row 2 \(line 3\), column 'Bo' of the input is infinite. Write NA"
    ):
        table(f"Ab,Bo\n1,2\n3,{infinite}\n")
    with pytest.raises(ValueError, match=r"^Row 3, column 'x1' of the input is infinite."):
        table(_saved(np.array([[1, 2], [3, 4], [5, float(infinite)]])))


def test_labels_that_floats_would_merge_stay_apart():
    found = table("who,x\n90071992547409931,1\n90071992547409932,2\n", apart=["who"])
    assert found.apart["who"].tolist() == ["90071992547409931", "90071992547409932"]
    assert table("who,x\nu,1\n?,2\n", apart=["who"]).apart["who"].tolist() == ["u", None]


def test_bad_places_and_columns_get_one_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none.csv' does not exist.$"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(ValueError, match=r"is a folder. A file is needed.$"):
        read_table(tmp_path)
    with pytest.raises(ValueError, match=r"^The input has no column 'c'. It has 'a', 'b'.$"):
        table("a,b\n1,2\n", drop=["c"])
    with pytest.raises(ValueError, match=r"^The input has no column left to model.$"):
        table("a,b\n1,2\n", drop=["a", "b"])
    with pytest.raises(ValueError, match=r"^The input has no array 'y'. It has 'arr_0'.$"):
        table(_saved(np.ones(2), np.savez), array="y")
    many = "who\n" + "\n".join(f"person {n}" for n in range(101))
    with pytest.raises(ValueError, match=r"^Column 'who' has 101 labels, more than the 100 that can be"):
        table(many, encode=["who"])


def test_a_file_larger_than_the_machine_is_refused(tmp_path):
    path = tmp_path / "huge.csv"
    with path.open("wb") as file:
        file.truncate(2**40)  # a tebibyte of nothing, which takes no room
    with pytest.raises(ValueError, match=r"huge.csv' has 1024.0 GiB, too much for a machine of .* GiB"):
        read_table(path)


def _packed(rows: int) -> dict[str, bytes]:
    """Small files that hold `rows` zeros."""
    frame, out = pl.DataFrame({"a": np.zeros(rows)}), io.BytesIO()
    frame.write_parquet(out)
    return {
        "parquet": out.getvalue(),
        "npz": _saved(np.zeros(rows), np.savez_compressed),
        "bytes as numbers": _saved(np.zeros(rows, np.int8), np.savez_compressed),
        "csv.gz": gzip.compress(b"0.00000\n" * rows, mtime=0),
        "arrow": _arrow(frame),
        # every line has a name of its own, and every row every column
        "json lines": "\n".join(f'{{"n{n}": 1}}' for n in range(int(rows**0.5))).encode(),
    }


def _arrow(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_ipc(out, compression="zstd")
    return out.getvalue()


@pytest.mark.parametrize("kind", ["parquet", "npz", "bytes as numbers", "csv.gz", "arrow", "json lines"])
def test_a_small_file_of_many_numbers_is_refused_before_it_is_unpacked(kind, monkeypatch):
    rows = 500_000
    content = _packed(rows)[kind]
    assert len(content) < 8 * rows / 100
    sentence = r"^The input unpacks to more than the 3 MiB that a file of its size may\. If you trust it, "
    with pytest.raises(ValueError, match=sentence + r"allow more \(--max-bytes\)\.$"):
        table(content, max_bytes=3 * 2**20)
    assert table(content, max_bytes=2**23).values.size == (707**2 if kind == "json lines" else rows)
    monkeypatch.setattr("freeenergy.datasets._packed._MOST_BYTES", 3 * 2**20)
    with pytest.raises(ValueError, match=sentence):
        table(content)
    # a file that is not packed takes what it has
    assert table(_saved(np.zeros(rows))).values.shape == (rows, 1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no such files here")
def test_what_has_no_end_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    endless = [tmp_path / "pipe", "/dev/zero"]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for path in [*endless, tmp_path / "socket"]:
            with pytest.raises(ValueError, match=r"is a device, a pipe or a socket\. A file is needed\.$"):
                read_table(path)


# ---------------------------------------------------------------------------------------------
# tables of several kinds of column
# ---------------------------------------------------------------------------------------------

MIXED = """name;joined;seen;smokes;size;zip;score
Ann;2020-02-29;2021-01-01T10:00:00;true;3;08001;1.5
Bob;NA;2021-01-02 11:30:00;false;NA;00501;?
Bób;2019-12-31;;TRUE;-4;09999;2
"""
MIXED_FRAME = pl.DataFrame(
    {
        "name": ["Ann", "Bob", "Bób"],
        "joined": [datetime.date(2020, 2, 29), None, datetime.date(2019, 12, 31)],
        "seen": [datetime.datetime(2021, 1, 1, 10), datetime.datetime(2021, 1, 2, 11, 30), None],
        "smokes": [True, False, True],
        "size": [3, None, -4],
        "zip": ["08001", "00501", "09999"],
        "score": [1.5, None, 2.0],
    }
)


def _written(kind: str) -> bytes:
    out = io.BytesIO()
    if kind == "parquet":
        MIXED_FRAME.write_parquet(out)
    elif kind == "arrow":
        MIXED_FRAME.write_ipc(out, compression="zstd")
    elif kind == "json lines":
        MIXED_FRAME.write_ndjson(out)
    elif kind == "json":
        MIXED_FRAME.write_json(out)
    elif kind == "csv.gz":
        out.write(_gzip(MIXED))
    else:
        out.write(MIXED.encode(kind))
    return out.getvalue()


@pytest.mark.parametrize(
    "kind",
    [
        "utf-8",
        "utf-8-sig",
        "utf-16",
        "utf-32",
        "cp1252",
        "csv.gz",
        "parquet",
        "arrow",
        "json lines",
        "json",
    ],
)
def test_a_table_of_several_kinds_is_the_same_frame_from_every_format(kind):
    found = table(_written(kind), text=["zip"]).frame
    assert_frame_equal(found, MIXED_FRAME)


def test_times_with_zones_are_in_one_zone_and_mixed_ones_are_text():
    found = table("at\n2020-01-01T10:00:00+02:00\n2020-01-01T10:00:00Z\n").frame["at"]
    utc = datetime.UTC
    expected = [datetime.datetime(2020, 1, 1, hour, tzinfo=utc) for hour in (8, 10)]
    assert found.to_list() == expected
    assert table("at\n2020-01-01T10:00:00+02:00\n2020-01-01T10:00:00\n").frame["at"].dtype == pl.String


def test_columns_that_cannot_be_read_are_told_where_that_is_asked_for():
    found = table("a,b,c\n1,inf,x\n2,2,y\nabc,3,z\n", strict=False)
    assert list(found.problems) == ["a", "b"]
    assert found.problems["a"].startswith("Row 3 (line 4), column 'a' of the input is no number: 'abc'.")
    assert "is infinite" in found.problems["b"]
    assert found.frame["a"].to_list() == ["1", "2", "abc"]
    assert table("a,b\n1,x\n2,y\nabc,z\n", text=["a"]).frame["a"].to_list() == ["1", "2", "abc"]


def _xlsx() -> bytes:
    """A workbook of two sheets, the first with text, a number and a date."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    related = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    kinds = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    links_are = "application/vnd.openxmlformats-package.relationships+xml"

    def sheet(*rows: str) -> bytes:
        lines = "".join(f'<row r="{n}">{row}</row>' for n, row in enumerate(rows, 1))
        return f'<worksheet xmlns="{main}"><sheetData>{lines}</sheetData></worksheet>'.encode()

    def text(place: str, value: str) -> str:
        return f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'

    parts = ("workbook", "sheet.main"), ("s1", "worksheet"), ("s2", "worksheet"), ("styles", "styles")
    types = "".join(
        f'<Override PartName="/xl/{name}.xml" ContentType="{kinds}.{kind}+xml"/>' for name, kind in parts
    )
    types = f'<Default Extension="rels" ContentType="{links_are}"/>{types}'
    links = [("1", "worksheet", "s1"), ("2", "worksheet", "s2"), ("3", "styles", "styles")]

    def relations(entries: list[tuple[str, str, str]]) -> bytes:
        lines = "".join(
            f'<Relationship Id="r{n}" Type="{related}/{kind}" Target="{to}.xml"/>'
            for n, kind, to in entries
        )
        return f'<Relationships xmlns="{package}/relationships">{lines}</Relationships>'.encode()

    sheets = '<sheet name="one" sheetId="1" r:id="r1"/><sheet name="two" sheetId="2" r:id="r2"/>'
    workbook = f'<workbook xmlns="{main}" xmlns:r="{related}"><sheets>{sheets}</sheets></workbook>'
    formats = '<cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="14" applyNumberFormat="1"/></cellXfs>'
    first = sheet(
        text("A1", "who") + text("B1", "size") + text("C1", "day"),
        text("A2", "Ann") + '<c r="B2"><v>1.5</v></c><c r="C2" s="1"><v>43890</v></c>',
        text("A3", "Bob") + '<c r="C3" s="1"><v>43891</v></c>',
    )
    return _zip(
        **{
            "[Content_Types].xml": f'<Types xmlns="{package}/content-types">{types}</Types>'.encode(),
            "_rels/.rels": relations([("1", "officeDocument", "xl/workbook")]),
            "xl/workbook.xml": workbook.encode(),
            "xl/_rels/workbook.xml.rels": relations(links),
            "xl/styles.xml": f'<styleSheet xmlns="{main}">{formats}</styleSheet>'.encode(),
            "xl/s1.xml": first,
            "xl/s2.xml": sheet(text("A1", "x"), '<c r="A2"><v>7</v></c>'),
        }
    )


def test_a_workbook_is_read_by_its_sheets():
    pytest.importorskip("fastexcel")
    found = table(_xlsx())
    assert found.notes == (
        "The input has the sheets 'one', 'two'; the first is taken. Say another with --array.",
    )
    days = [datetime.date(2020, 2, 29), datetime.date(2020, 3, 1)]
    assert found.frame.to_dict(as_series=False) == {"who": ["Ann", "Bob"], "size": [1.5, None], "day": days}
    assert table(_xlsx(), array="two").values.tolist() == [[7.0]]
    with pytest.raises(ValueError, match=r"^The input has no sheet 'three'. It has 'one', 'two'.$"):
        table(_xlsx(), array="three")
    with pytest.raises(ValueError, match=r"unpacks to more than the 0 MiB"):
        table(_xlsx(), max_bytes=100)


def test_a_workbook_without_its_reader_gets_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    with pytest.raises(ValueError, match=r"needs the package fastexcel\. Install it \(pip install 'freeen"):
        table(_xlsx())


# ---------------------------------------------------------------------------------------------
# properties
# ---------------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.none(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53)
)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=8).filter(
    lambda s: (
        s == s.strip() and not s[0].isdigit() and s[0] not in "+-.?" and s.lower() not in ("na", "nan")
    )
)


@given(
    data=st.data(),
    separator=st.sampled_from(",;\t|"),
    quoting=st.booleans(),
    ends=st.sampled_from(["\n", "\r\n"]),
)
@settings(deadline=None, max_examples=100)
def test_what_was_written_is_read(data, separator, quoting, ends):
    names = [
        "name",
        *data.draw(st.lists(NAMES, min_size=1, max_size=3, unique=True).filter(lambda n: "name" not in n)),
    ]
    rows = data.draw(
        st.lists(st.lists(NUMBERS, min_size=len(names), max_size=len(names)), min_size=1, max_size=5)
    )
    out = io.StringIO(newline="")
    quote = csv.QUOTE_ALL if quoting else csv.QUOTE_MINIMAL
    writer = csv.writer(out, delimiter=separator, lineterminator=ends, quoting=quote)
    writer.writerow(names)
    writer.writerows([["NA" if v is None else repr(v) for v in row] for row in rows])
    found = table(out.getvalue())
    assert found.names == names
    expected = np.array([[np.nan if v is None else float(v) for v in row] for row in rows])
    np.testing.assert_array_equal(found.values, expected)


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
@settings(deadline=None, max_examples=100)
def test_any_bytes_are_a_table_or_a_sentence(content):
    try:
        found = table(content)
        _ = found.values
    except ValueError as error:
        assert str(error).endswith((".", ")."))  # noqa: PT017
        assert "Traceback" not in str(error)  # noqa: PT017
    else:
        assert found.values.shape[-1] == len(found.names) > 0
        assert found.values.dtype == float


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_damaged_files_are_a_table_or_a_sentence(data):
    content = bytearray(
        data.draw(st.sampled_from([_parquet(), _saved(np.ones((3, 2))), _saved(np.ones(3), np.savez)]))
    )
    if content.startswith(b"PAR1"):
        # Polars ends the process where a changed byte makes it ask for more memory than there is
        del content[data.draw(st.integers(4, len(content) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = table(bytes(content))
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert found.values.dtype == float
