"""The record of what columns mean: lookups, checks, JSON, and how it is shown."""

import json

import pytest

import circurve as cc
from circurve.errors import DataError, FileFormatError, OptionError, StructureError
from circurve.schema import Coding, Column, Schema

PEOPLE = Schema(
    (
        Column("age", cc.Gaussian(), reason="real numbers"),
        Column("smoker", cc.Bernoulli(), "boolean"),
        Column("city", cc.Categorical(2), "category", ("Oslo", "Rome"), unseen_share=0.01),
        Column("born", cc.Gaussian(), "date", origin="1970-01-31"),
    ),
    ignored=("id",),
)


def test_families_names_and_positions():
    assert PEOPLE.names == ("age", "smoker", "city", "born")
    assert [family.name for family in PEOPLE.families] == ["gaussian", "bernoulli", "categorical", "gaussian"]
    assert [PEOPLE.position(name) for name in PEOPLE.names] == [PEOPLE.position(n) for n in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("ctiy", "no column 'ctiy'; do you mean 'city'?"),
        ("AGE", "no column 'AGE'; do you mean 'age'?"),
        ("zzz", "no column 'zzz'; there are 'age', 'smoker', 'city', 'born'"),
        (4, "no column of index 4: indices go from 0 for column 1 to 3 for column 4"),
        (-1, "no column of index -1"),
        (True, "a column is given by its name or its index, not by True"),
        (1.0, "a column is given by its name or its index, not by 1.0"),
    ],
)
def test_an_unknown_column_is_named(key, message):
    with pytest.raises(DataError) as caught:
        PEOPLE.position(key)
    assert message in str(caught.value)


def test_columns_without_names_have_numbers():
    plain = Schema.of([cc.Bernoulli()] * 2)
    assert plain.names is None
    assert plain.plain
    assert not PEOPLE.plain
    with pytest.raises(
        DataError, match="the columns have no names; use indices, from 0 for column 1 to 1 for column 2"
    ):
        plain.position("a")


def test_json_and_back():
    again = Schema.from_json(json.loads(json.dumps(PEOPLE.to_json())))
    assert again == PEOPLE
    assert [column.reason for column in again.columns] == [column.reason for column in PEOPLE.columns]


def test_a_reason_does_not_make_a_column_another_one():
    assert Column("a", cc.Gaussian(), reason="x") == Column("a", cc.Gaussian(), reason="y")
    assert Column("a", cc.Gaussian()).coding == Coding()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "a schema must be an object with a list of columns"),
        ({"columns": [3]}, "a column of a schema must be an object, not 3"),
        ({"columns": [{"name": 3, "family": {"name": "bernoulli"}}]}, "name and reason must be text"),
        ({"columns": [{"name": "a", "family": {"name": "bernoulli"}, "x": 1}]}, "unknown field 'x'"),
        ({"columns": [{"name": "a", "family": {"name": "what"}}]}, "unknown input family 'what'"),
        ({"columns": [{"name": "a", "family": {"name": "bernoulli"}, "kind": "text"}]}, "kind must be one of number"),
        ({"columns": [{"name": "a", "family": {"name": "bernoulli"}, "categories": "ab"}]}, "must be a list"),
        ({"columns": [{"name": "a", "family": {"name": "bernoulli"}}] * 2}, "two columns have the name 'a'"),
        ({"columns": [], "ignored": [1]}, "'ignored' must be a list of names"),
    ],
)
def test_broken_documents_are_refused(document, message):
    with pytest.raises(FileFormatError, match=message):
        Schema.from_json(document)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "category"}, "categories go with kind 'category'"),
        ({"categories": ("a",)}, "categories go with kind 'category'"),
        ({"kind": "date"}, "an origin goes with kind 'date'"),
        ({"kind": "date", "origin": "yesterday"}, "origin must be an ISO date such as"),
        ({"kind": "category", "categories": ("a", "a")}, "a category is listed twice"),
        ({"kind": "category", "categories": ("a", "b", "c", "d")}, "4 categories do not fit Categorical"),
        ({"kind": "category", "categories": (None,)}, "a category must be text, a number or true or false"),
        ({"unseen_share": 0.1}, "unseen_share is for columns of categories"),
        (
            {"kind": "category", "categories": ("a",), "unseen_share": 1},
            "unseen_share must be a number from 0 to below 1",
        ),
    ],
)
def test_a_column_that_contradicts_itself_is_refused(fields, message):
    with pytest.raises(OptionError, match=f"column 'x': .*{message}"):
        Column("x", cc.Categorical(3), **fields)


def test_names_are_for_all_columns_or_none_and_differ():
    with pytest.raises(OptionError, match="a name for every column, or for none"):
        Schema((Column("a", cc.Bernoulli()), Column(None, cc.Bernoulli())))
    with pytest.raises(OptionError, match="two columns have the name 'a'"):
        Schema((Column("a", cc.Bernoulli()),), ignored=("a",))


def test_it_is_shown_as_a_table_with_reasons():
    lines = repr(PEOPLE).splitlines()
    assert lines[0].split() == ["column", "family", "values", "reason"]
    assert lines[1].endswith("real numbers")
    assert "Oslo, Rome; 0.01 for unseen values" in lines[3]
    assert "days since 1970-01-31" in lines[4]
    assert lines[5].startswith("id ")
    html = Schema.of([cc.Bernoulli()], ["<b>"])._repr_html_()
    assert "&lt;b&gt;" in html
    assert html.count("<tr") == 2


def test_a_circuit_keeps_a_schema_that_fits_it():
    circuit = cc.mixture(PEOPLE, 3)
    assert circuit.schema == PEOPLE
    assert cc.fully_factorized(PEOPLE).schema == cc.hmm(PEOPLE, 2).schema == PEOPLE
    assert cc.random_binary_trees(PEOPLE, 2, 1).schema == PEOPLE
    assert cc.mixture((cc.Bernoulli(), 2), 2).schema is None
    assert cc.mixture(Schema.of([cc.Bernoulli()]), 2).schema is None
    with pytest.raises(StructureError, match="the schema has 4 columns, the circuit has 1 variable"):
        cc.Circuit(cc.Input(0, cc.Bernoulli()), schema=PEOPLE)
    with pytest.raises(StructureError, match=r"variable 0 \('age'\) is Gaussian.* in the schema, Bernoulli\(\) in the"):
        cc.Circuit(cc.fully_factorized(4).roots, schema=PEOPLE)
