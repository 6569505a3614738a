"""Columns as people have them: kinds, codes, and the way back into the frame that they came from."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import polars.testing
import pytest
import statsmodels.api as sm

import freeenergy as fe
from freeenergy._core import CellError
from freeenergy.shell import CodedRows, Column, Field
from freeenergy.shell._codec import Decoder, Encoder

RNG = np.random.default_rng(0)
N = 60
COLUMNS = {
    "height": RNG.normal(size=N),
    "weight": np.round(RNG.normal(70, 9, N), 1),
    "children": RNG.poisson(2.0, N) + np.arange(N) % 2,
    "balance": RNG.integers(-50, 50, N),
    "smokes": RNG.integers(0, 2, N).astype(bool),
    "sex": RNG.choice(["m", "f"], N),
    "colour": RNG.choice(["red", "green", "blue"], N),
    "born": [dt.date(1990, 1, 1) + dt.timedelta(days=int(d)) for d in RNG.integers(0, 9000, N)],
    "seen": [dt.datetime(2020, 1, 1, 12) + dt.timedelta(seconds=int(d)) for d in RNG.integers(0, 9**6, N)],
    "planet": ["earth"] * N,
    "row": np.arange(N),
    "name": [f"P{i:03d}" for i in range(N)],
    "remark": [f"I have {i} things to say, and say them again and again" for i in RNG.integers(0, 55, N)],
}
KINDS = {
    "height": "continuous",
    "weight": "rounded",
    "children": "count",
    "balance": "integer",
    "smokes": "binary",
    "sex": "binary",
    "colour": "category",
    "born": "date",
    "seen": "date",
    "planet": "constant",
    "row": "identifier",
    "name": "identifier",
    "remark": "text",
}
LEFT_OUT = ["row", "name", "remark"]


def in_pandas():
    return pd.DataFrame(COLUMNS).assign(born=pd.to_datetime(COLUMNS["born"]))


FRAMES = {"pandas": in_pandas, "polars": lambda: pl.DataFrame(COLUMNS)}
assert_equal = {
    "pandas": pd.testing.assert_frame_equal,
    "polars": pl.testing.assert_frame_equal,
}


def kept(frame):
    return frame.drop(columns=LEFT_OUT) if isinstance(frame, pd.DataFrame) else frame.drop(LEFT_OUT)


@pytest.mark.parametrize("library", FRAMES)
def test_kinds_are_found_and_what_was_encoded_comes_back_as_it_was(library):
    frame = FRAMES[library]()
    schema = fe.Schema.recognise(frame)
    assert {field.name: field.kind.value for field in schema.fields} == KINDS
    assert schema.library == library
    codes = schema.encode(frame)
    assert codes.shape == (N, len(KINDS) - len(LEFT_OUT) - 1)
    assert_equal[library](schema.decode(codes), kept(frame))


@pytest.mark.parametrize("library", FRAMES)
def test_codes_are_what_the_library_itself_says(library):
    codes = fe.Schema.recognise(FRAMES[library]()).encode(FRAMES[library]())
    frame = in_pandas()
    np.testing.assert_array_equal(codes[:, 0], frame["height"])
    np.testing.assert_array_equal(codes[:, 4], frame["smokes"])
    np.testing.assert_array_equal(codes[:, 6], frame["colour"].astype("category").cat.codes)
    born = frame["born"]
    np.testing.assert_array_equal(codes[:, 7], (born - born.min()).dt.days)
    seen = frame["seen"]
    np.testing.assert_array_equal(codes[:, 8], (seen - seen.min().normalize()).dt.total_seconds())


def test_lists_and_arrays_of_objects_have_columns_of_their_own_kinds():
    rows = [[1.5, "a", 3], [2.25, "b", None], [np.nan, "c", 3], [1.5, None, 4]]
    for X in (rows, np.array(rows, object)):
        schema = fe.Schema.recognise(X)
        assert repr(schema) == "Schema(0='rounded', 1='category', 2='count')"
        np.testing.assert_array_equal(
            schema.encode(X), [[1.5, 0, 3], [2.25, 1, np.nan], [np.nan, 2, 3], [1.5, np.nan, 4]]
        )
        assert schema.decode([[1.5, 2, 4]]).tolist() == [[1.5, "c", 4.0]]
    # rows of numbers are filled as an array of numbers, here of a grid of 0.75 and of counts
    numbers = [[1.5, 1, 3], [2.25, 0, None], [np.nan, 1, 3], [1.5, 0, 4]]
    schema = fe.Schema.recognise(numbers)
    filled = schema.fill(numbers, np.where(np.isnan(schema.encode(numbers)), 2.0, schema.encode(numbers)))
    assert filled.dtype == float
    np.testing.assert_array_equal(filled, [[1.5, 1, 3], [2.25, 0, 2], [2.25, 1, 3], [1.5, 0, 4]])
    strings = fe.Schema.recognise(np.array([["1.5", "a"], ["2.25", "b"]]))
    assert repr(strings) == "Schema(0='continuous', 1='binary')"


def test_missing_entries_of_nullable_types_are_nan_and_the_types_come_back():
    frame = pd.DataFrame(
        {
            "n": pd.array([1, None, 3, 3, 7], dtype="Int16"),
            "yes": pd.array([True, None, False, True, True], dtype="boolean"),
            "x": pd.array([0.5, None, 2.5, np.pi, 1.0], dtype="Float32"),
            "s": pd.array(["u", None, "v", "w", "w"], dtype="string"),
            "when": pd.to_datetime(
                ["2020-01-01 06:00", None, "2020-01-03", "2020-02-01", "2020-01-01"], format="ISO8601"
            ).tz_localize("Europe/Berlin"),
            "c": pd.Categorical(
                ["lo", None, "hi", "lo", "hi"], categories=["lo", "mid", "hi"], ordered=True
            ),
        }
    )
    schema = fe.Schema.recognise(frame)
    assert [field.kind.value for field in schema.fields] == [
        "count",
        "binary",
        "continuous",
        "category",
        "date",
        "ordered",
    ]
    assert {field.missing for field in schema.fields} == {0.2}
    assert schema["c"].categories == ("lo", "mid", "hi")
    codes = schema.encode(frame)
    np.testing.assert_array_equal(np.isnan(codes), frame.isna())
    whole = frame.dropna().reset_index(drop=True)
    pd.testing.assert_frame_equal(schema.decode(codes[[0, 2, 3, 4]]), whole)
    filled = schema.fill(frame, np.where(np.isnan(codes), codes[0], codes))
    pd.testing.assert_frame_equal(filled, pd.concat([frame[:1], frame[:1], frame[2:]], ignore_index=True))


def test_types_of_polars_come_back():
    frame = pl.DataFrame(
        {
            "e": pl.Series(["a", None, "c"], dtype=pl.Enum(["c", "b", "a"])),
            "k": pl.Series(["a", "b", "z"], dtype=pl.Categorical),
            "i": pl.Series([1, None, 200], dtype=pl.UInt8),
            "f": pl.Series([0.5, 1.25, 7.0], dtype=pl.Float32),
            "t": pl.Series(
                [dt.datetime(2020, 1, 1, 5), None, dt.datetime(2021, 1, 1)]
            ).dt.replace_time_zone("Asia/Tokyo"),
            "b": [True, None, False],
        }
    )
    schema = fe.Schema.recognise(frame)
    codes = schema.encode(frame)
    np.testing.assert_array_equal(codes[:, 0], [2, np.nan, 0])
    complete = np.where(np.isnan(codes), codes[0], codes)
    back = schema.decode(complete)
    assert back.schema == frame.schema
    pl.testing.assert_frame_equal(back[[0, 2]], frame[[0, 2]])
    assert schema.fill(frame, complete)["i"].to_list() == [1, 1, 200]


def test_an_integer_column_filled_with_fractions_is_one_of_floats():
    frame = pl.DataFrame({"i": [1, None, 3], "s": ["a", "b", "c"]})
    schema = fe.Schema.recognise(frame)
    assert schema.fill(frame, np.array([[1, 0], [2.5, 1], [3, 2.0]]))["i"].to_list() == [1.0, 2.5, 3.0]


class Arrow:
    """A table that only Arrow's interface is known of."""

    def __init__(self, frame):
        self.frame, self.column_names = frame, frame.columns

    def __arrow_c_stream__(self, schema=None):
        return self.frame.__arrow_c_stream__(schema)


def test_tables_of_arrow_are_read_as_those_of_polars():
    frame = FRAMES["polars"]()
    schema = fe.Schema.recognise(Arrow(frame))
    assert schema.library == "arrow"
    np.testing.assert_array_equal(schema.encode(Arrow(frame)), fe.Schema.recognise(frame).encode(frame))


def test_columns_are_taken_by_name_in_any_order():
    frame = FRAMES["pandas"]()
    schema = fe.Schema.recognise(frame)
    turned = frame[frame.columns[::-1]].drop(columns="name").assign(other=1)
    np.testing.assert_array_equal(schema.encode(turned), schema.encode(frame))
    np.testing.assert_array_equal(schema.encode(pl.DataFrame(COLUMNS)), schema.encode(frame))


def test_what_was_not_fitted_is_refused_where_it_stands():
    frame = FRAMES["pandas"]().set_index("name", drop=False)
    schema = fe.Schema.recognise(frame)
    with pytest.raises(
        ValueError, match=r"X lacks the column 'sex', which was fitted. Add it, with missing"
    ):
        schema.encode(frame.drop(columns="sex"))
    changes = [
        (
            "colour",
            "black",
            r"fitted: 'blue', 'green', 'red'\. Pass it as.* Got 'black' in row 'P003', column 'colour'",
        ),
        (
            "planet",
            "mars",
            "Every entry of the column was 'earth' .* Got 'mars' in row 'P003', column 'planet'",
        ),
        ("height", np.inf, "not infinity. Got inf in row 'P003', column 'height'"),
    ]
    for name, value, sentence in changes:
        other = frame.copy()
        other.loc["P003", name] = value
        with pytest.raises(CellError, match=sentence):
            schema.encode(other)
    # of numbers and dates beside each other NumPy makes no array
    days = pl.Series("day", range(40)).cast(pl.Int32).cast(pl.Date)
    dated = pl.DataFrame({"size": np.linspace(0, 1, 40), "colour": ["red", "blue"] * 20}).with_columns(days)
    with pytest.raises(TypeError):
        np.asarray(dated)
    with pytest.raises(
        CellError, match=r"fitted: 'blue', 'red'\. .* Got 'black' in row 0, column 'colour'"
    ):
        fe.Schema.recognise(dated).encode(dated.with_columns(colour=pl.lit("black")))
    with pytest.raises(CellError, match=r"not text. Got 'tall' in row 'P000', column 'height'"):
        schema.encode(frame.assign(height="tall"))
    with pytest.raises(
        CellError, match=r"A column of dates must hold dates. Got 3 in row 'P000', column 'born'"
    ):
        schema.encode(frame.assign(born=3.0))
    with pytest.raises(ValueError, match="X has 2 columns, but 13 were fitted"):
        schema.encode(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="Z must have 9 columns of numbers"):
        schema.decode(np.zeros((3, 2)))


def test_kinds_are_declared():
    frame = FRAMES["polars"]()
    schema = fe.Schema.recognise(
        frame,
        kinds={"children": "category", "row": "count", "colour": ["red", "green", "blue"], "sex": "text"},
    )
    kinds = {field.name: field.kind.value for field in schema.fields}
    assert kinds["children"] == "category"
    assert kinds["row"] == "count"
    assert kinds["colour"] == "ordered"
    assert kinds["sex"] == "text"
    assert schema["children"].categories == tuple(sorted(set(COLUMNS["children"].tolist())))
    codes = schema.encode(frame)
    place = [field.name for field in schema.modelled].index("colour")
    assert codes[:, place].tolist() == [["red", "green", "blue"].index(c) for c in COLUMNS["colour"]]
    assert schema.decode(codes)["children"].to_list() == frame["children"].to_list()


@pytest.mark.parametrize(
    ("kinds", "sentence"),
    [
        ({"sex": "gender"}, "The kind of column 'sex' must be of 'continuous', .* Got 'gender' instead"),
        ({"age": "count"}, "The kinds name the column 'age', which X has not"),
        ({"balance": "count"}, "'balance' is declared count and must hold whole numbers from zero on"),
        ({"height": "integer"}, "'height' is declared integer and must hold whole numbers"),
        ({"height": "rounded"}, "'height' is declared rounded and must hold values on a grid"),
        ({"sex": "continuous"}, "'sex' is declared continuous and must hold numbers. Got 'f'"),
        ({"sex": "date"}, "'sex' is declared date and must hold dates"),
        ({"sex": "constant"}, "'sex' is declared constant and must hold one value"),
        ({"colour": "binary"}, "'colour' is declared binary and must hold two values"),
        ({"colour": ["red", "blue"]}, "labels of column 'colour' must list all that occur. Got 'green'"),
        (["count"], "one for each of the 13 columns. Got 1"),
    ],
)
def test_declarations_that_cannot_be_are_refused(kinds, sentence):
    with pytest.raises(ValueError, match=sentence):
        fe.Schema.recognise(FRAMES["polars"](), kinds=kinds)


def test_what_is_no_table_or_holds_other_things_is_refused():
    with pytest.raises(ValueError, match=r"must have different names. Got 'a' 2 times"):
        fe.Schema.recognise(pd.DataFrame([[1, "x"]], columns=["a", "a"]))
    with pytest.raises(ValueError, match="X must be a data frame, or have rows and columns"):
        fe.Schema.recognise("word")
    with pytest.raises(TypeError, match="Column 'a' holds List"):
        fe.Schema.recognise(pl.DataFrame({"a": [[1, 2]]}))
    with pytest.raises(TypeError, match="not bool and dict"):
        fe.Schema.recognise([[{}, 1], [True, 2]])
    with pytest.raises(ValueError, match="Categories must be text, numbers or truth values"):
        fe.Schema.recognise(pd.DataFrame({"a": pd.cut([1, 2, 3], 3)}))
    with pytest.raises(TypeError, match=r"a data frame\. Got a mapping; make a frame of it"):
        fe.GaussianDensity().fit({"a": [1.0, 2.0]})


def test_numbers_written_as_text_are_labels_and_this_is_said():
    frame = pl.DataFrame({"zip": ["08001", "08400", "08001"]})
    field = fe.Schema.recognise(frame)["zip"]
    assert field.categories == ("08001", "08400")
    assert "numbers written as text" in field.treatment
    frame = pl.DataFrame(
        {"day": ["2024-01-01", "2024-01-02T10:00", "2024-01-01"], "no": ["2024-01", "a", "a"]}
    )
    schema = fe.Schema.recognise(frame)
    assert "dates written as text" in schema["day"].treatment
    assert "written" not in schema["no"].treatment


def test_the_support_of_what_is_modelled():
    support = fe.Schema.recognise(FRAMES["polars"]()).support
    assert [kind.value for kind in support.kinds] == ["continuous", "rounded", *["integer"] * 7]
    assert support.steps[1] == pytest.approx(0.1)
    half = pl.DataFrame({"t": [dt.datetime(2020, 1, 1, 1, 1, 1, 500_000 * i) for i in (0, 1)]})
    assert fe.Schema.recognise(half).support.continuous.all()


def test_a_schema_prints_a_table_and_survives_a_file():
    schema = fe.Schema.recognise(FRAMES["polars"]())
    lines = str(schema).splitlines()
    assert len(lines) == 1 + len(KINDS)
    assert lines[0].split() == ["column", "kind", "values", "missing", "what", "is", "done", "with", "it"]
    assert "days since 19" in str(schema)
    assert "left out" in lines[1 + list(KINDS).index("row")]
    assert schema._repr_html_().count("<tr>") == len(lines)
    encoder = Encoder(schema)
    node = encoder.encode(schema, "schema_", None)
    assert Decoder({}, encoder.tensors, ()).decode(node) == schema


def test_a_real_table():
    # children and years of marriage of the affairs data are rounded or counted; occupations are codes
    frame = sm.datasets.fair.load_pandas().data
    schema = fe.Schema.recognise(frame, kinds={"occupation": "category", "occupation_husb": "category"})
    assert schema["occupation"].categories == (1, 2, 3, 4, 5, 6)
    assert schema["yrs_married"].kind.value == "rounded"
    codes = schema.encode(frame)
    pd.testing.assert_frame_equal(schema.decode(codes), frame)


def test_days_stay_days_and_seconds_seconds():
    days = pd.DataFrame(
        {"t": pd.to_datetime(["2020-01-01", "2020-01-03", "2020-01-03"]), "x": [0.1, 0.2, 0.4]}
    )
    schema = fe.Schema.recognise(days)
    found = schema.decode(np.array([[0.6, 1.0], [1.4, 2.0]]))
    assert found["t"].tolist() == [pd.Timestamp("2020-01-02"), pd.Timestamp("2020-01-02")]
    noon = fe.Schema.recognise(days.assign(t=days["t"] + pd.to_timedelta([0, 0.5, 0.25], "s")))
    assert (noon.decode(np.array([[0.6, 1.0]]))["t"] - days["t"][0]).dt.total_seconds().tolist() == [0.6]


def test_rows_with_a_schema_know_what_their_columns_are():
    frame = pl.DataFrame({"sex": ["f", "m", "f"], "x": [0.1, 0.25, 0.7]})
    rows = fe.Schema.recognise(frame).rows(frame)
    assert isinstance(rows, CodedRows)
    assert (rows.shape, len(rows[:2]), rows[1:].x.tolist()) == ((3, 2), 2, [[1.0, 0.25], [0.0, 0.7]])
    first = rows.schema["sex"]
    assert isinstance(first, Field)
    assert (first.kind, first.categories, first.modelled) == (Column.BINARY, ("f", "m"), True)


def test_rounded_numbers_stay_on_their_grid():
    frame = pl.DataFrame({"x": [0.5, 1.5, 1.5, 3.0], "sex": ["f", "m", "f", "m"]})
    assert fe.Schema.recognise(frame).decode(np.array([[0.8, 0.0], [2.2, 1.0]]))["x"].to_list() == [
        1.0,
        2.0,
    ]


def test_rounded_numbers_are_the_decimals_that_one_writes():
    """131 · 0.1 is 13.100000000000001, which no file of tenths holds."""
    tenths = np.arange(400) / 10
    decoded = fe.Schema.recognise(pl.DataFrame({"x": np.repeat(tenths, 2)})).decode(tenths[:, None] + 0.04)
    assert decoded["x"].to_list() == tenths.tolist()
    thirds = np.arange(40) / 3
    decoded = fe.Schema.recognise(pl.DataFrame({"x": np.repeat(thirds, 2)})).decode(thirds[:, None] + 0.1)
    np.testing.assert_allclose(decoded["x"], thirds, rtol=1e-14)


@pytest.mark.parametrize("gone", [None, np.nan])
def test_truth_with_holes_is_a_column_of_objects_and_stays_one(gone):
    frame = pd.DataFrame(
        {"yes": pd.Series([True, gone, False, True], dtype=object), "x": [1.0, 2.0, 2.0, 4.5]}
    )
    schema = fe.Schema.recognise(frame)
    codes = schema.encode(frame)
    filled = schema.fill(frame, np.where(np.isnan(codes), 0.0, codes))
    assert filled["yes"].tolist() == [True, False, False, True]
    assert all(type(value) is bool for value in filled["yes"])
    rows = np.array([[True, "a"], [gone, "b"], [False, "a"]], object)
    codes = fe.Schema.recognise(rows).encode(rows)
    decoded = fe.Schema.recognise(rows).decode(codes)
    assert decoded[0, 0] is True
    assert np.isnan(decoded[1, 0])
    assert decoded[2, 0] is False
