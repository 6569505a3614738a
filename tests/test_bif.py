"""Bayesian networks in files and on the command line, and their pictures."""

import json

import numpy as np
import pytest

import freeenergy as fe
from freeenergy import plots
from freeenergy.cli._main import run
from freeenergy.datasets import bif_of, parse_bif, read_bif, write_bif

ASIA = """// the network of Lauritzen and Spiegelhalter (1988)
network asia { property note "a visit, /* and */ smoke"; }
variable asia { type discrete [ 2 ] { yes, no }; }
variable tub { type discrete [ 2 ] { yes, no }; property position = (1, 2) ; }
variable smoke { type discrete [ 2 ] { yes, no }; }
variable lung { type discrete [ 2 ] { yes, no }; }
variable bronc { type discrete [ 2 ] { yes, no }; }
variable either { type discrete [ 2 ] { yes, no }; }
variable xray { type discrete [ 2 ] { yes, no }; }
variable dysp { type discrete [ 2 ] { yes, no }; }
probability ( asia ) { table 0.01, 0.99; }
probability ( tub | asia ) { (yes) 0.05, 0.95; (no) 0.01, 0.99; }
probability ( smoke ) { table 0.5, 0.5; }
probability ( lung | smoke ) { (yes) 0.1, 0.9; (no) 0.01, 0.99; }
/* the variable
   itself is outermost */
probability ( bronc | smoke ) { table 0.6, 0.3, 0.4, 0.7; }
probability ( either | lung, tub ) { default 1.0, 0.0; (no, no) 0.0, 1.0; }
probability ( xray | either ) { (yes) 0.98, 0.02; (no) 0.05, 0.95; }
probability ( dysp | bronc, either ) {
  (yes, yes) 0.9, 0.1; (no, yes) 0.7, 0.3;
  (yes, no) 0.8, 0.2; (no, no) 0.1, 0.9;
}
"""


def test_a_file_says_what_is_published_of_it(tmp_path):
    path = tmp_path / "asia.bif"
    path.write_text(ASIA, "utf-8")
    asia = read_bif(path)
    prior = asia.posterior().marginals()
    # Cowell et al. (1999), and any other program
    known = {
        "tub": 0.0104,
        "lung": 0.055,
        "bronc": 0.45,
        "either": 0.064828,
        "xray": 0.11029004,
        "dysp": 0.4359706,
    }
    for name, p in known.items():
        assert prior[name]["yes"] == pytest.approx(p, abs=1e-7)
    assert asia.graph.separated("asia", "smoke")
    assert not asia.graph.separated("asia", "smoke", given="dysp")
    after = asia.posterior({"xray": "yes", "dysp": "yes"})
    # by enumeration
    states = np.indices((2,) * 8).reshape(8, -1).T
    joint = np.exp(asia.rows().evidence(states.astype(float)))
    fits = (states[:, 6] == 0) & (states[:, 7] == 0)
    assert np.exp(after.log_evidence) == pytest.approx(joint[fits].sum())
    lung = joint[fits & (states[:, 3] == 0)].sum() / joint[fits].sum()
    assert after.marginal("lung")["yes"] == pytest.approx(lung)
    again = tmp_path / "again.bif"
    write_bif(asia, again)
    assert bif_of(read_bif(again)) == bif_of(asia)
    for a, b in zip(read_bif(again).nodes, asia.nodes, strict=True):
        np.testing.assert_allclose(a.probabilities, b.probabilities, rtol=1e-14)


def test_names_of_any_kind_come_back():
    odd = fe.models.BayesianNetwork.of_tables({"a b": [0.25, 0.75]}, {}, {"a b": ["< 5", "5-10"]})
    again = parse_bif(bif_of(odd))
    assert (again.names, again.states) == (("a b",), (("< 5", "5-10"),))
    wrong = fe.models.BayesianNetwork.of_tables({'a"': [0.25, 0.75]}, {})
    with pytest.raises(ValueError, match="must have no quotation mark or end of line"):
        bif_of(wrong)


A = "variable a { type discrete [ 2 ] { yes, no }; }\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"'text', line 1, has no variable\."),
        ("hello", "line 1, must begin with 'network', 'variable' or 'probability'. Got 'hello' instead"),
        (A + A, "line 2, has the variable 'a' for a second time"),
        (A, "line 1, ends without a probability of 'a'"),
        (A + "probability ( b ) { table 1; }", "line 2, has a variable 'b' that was not declared before"),
        (A + "probability ( a ) {\n table 0.5, x; }", "line 3, must have a number. Got 'x' instead"),
        (A + "probability ( a ) {\n table 0.5; }", "line 3, must have 2 numbers for 'a'. Got 1 instead"),
        (
            A + "probability ( a ) { table 0.5, 0.6; }",
            r"line 2, must have probabilities of sum one for 'a'. Got \[0.5, 0.6\]",
        ),
        (A + "probability ( a ) { table 0.5, 0.5;", "line 2, ends too early"),
        (A + "probability ( a ) { }", "line 2, ends the probability of 'a' without all rows"),
        (
            "variable a { type discrete [ 3 ] { yes, no }; }",
            "line 1, must have 3 states of 'a'. Got 2 instead",
        ),
        ("variable a { type continuous; }", "must have 'discrete'. Got 'continuous' instead"),
        ("variable a { }", "ends the variable 'a' without its type"),
        ('variable "a', "has a quotation mark or a comment without an end"),
        (A + "probability ( a ) { (yes) 0.5, 0.5; }", r"must have a state of each of \[\]. Got \['yes'\]"),
        (
            A + A.replace(" a ", " b ") + "probability ( a | b ) { (maybe) 1, 0; }",
            "line 3, must have a state of 'b'. Got 'maybe' instead",
        ),
        (
            A
            + A.replace(" a ", " b ")
            + "probability ( a | b ) { default 1, 0; } probability ( b | a ) { default 1, 0; }",
            "'text': The edges of DirectedGraph must have no cycle. Got 'a' → 'b' → 'a'",
        ),
    ],
)
def test_files_that_are_none_are_refused_with_the_line(text, message):
    with pytest.raises(ValueError, match=message):
        parse_bif(text)


def test_the_command_line_asks_a_network(tmp_path, capsys):
    path, picture = tmp_path / "asia.bif", tmp_path / "asia.png"
    path.write_text(ASIA, "utf-8")
    assert run(["network", str(path), "--given", "xray=yes,dysp=yes", "--query", "lung,tub"]) == 0
    shown = capsys.readouterr()
    expected = read_bif(path).posterior({"xray": "yes", "dysp": "yes"})
    assert f"lung      yes       {expected.marginal('lung')['yes']:.6g}" in shown.out
    assert "asia" not in shown.out
    assert f"The probability of what is given is {np.exp(expected.log_evidence):.6g}" in shown.err
    assert run(["network", str(path), "--given", "asia=no", "--best", "--picture", str(picture)]) == 0
    assert "smoke     no" in capsys.readouterr().out
    assert picture.stat().st_size > 1000
    assert run(["network", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["marginals"]["lung"]["yes"] == pytest.approx(0.055)
    assert answer["given"] == {}
    for options, message in [
        (["--given", "lung"], "--given must be pairs such as A=yes,B=no. Got 'lung' instead."),
        (["--given", "lung=maybe"], "The state of 'lung' must be one of 'yes', 'no'. Got 'maybe' instead."),
        (["--given", "lung=yes,lung=no"], "--given has two states of 'lung': yes and no."),
        (["--query", "heart"], "A variable of the network must be one of"),
        (["--given", "lung=yes,either=no"], "Got lung=yes, either=no, whose probability is zero."),
    ]:
        assert run(["network", str(path), *options]) == 2
        assert message in capsys.readouterr().err
    model = tmp_path / "model.safetensors"
    fe.BayesianNetwork.from_model(read_bif(path)).save(model)
    assert run(["network", str(model), "--query", "lung"]) == 0
    assert "0.055" in capsys.readouterr().out
    fe.GaussianDensity().fit(np.eye(3)).save(model)
    assert run(["network", str(model)]) == 2
    assert "must hold a BayesianNetwork or MarkovNetwork" in capsys.readouterr().err


def test_pictures_of_graphs():
    asia = parse_bif(ASIA)
    ax = plots.network(asia, probabilities=asia.posterior().marginals())
    assert len(ax.texts) == 8
    assert len(ax.patches) == len(asia.graph.edges) == 8
    # parents stand above their children
    height = {text.get_text().split("\n")[0]: text.get_position()[1] for text in ax.texts}
    assert all(height[a] > height[b] for a, b in asia.graph.edges)
    ring = plots.network(asia.graph.moralise())
    assert len(ring.patches) == 10
