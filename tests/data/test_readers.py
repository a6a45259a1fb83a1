"""Text files by pyarrow, pandas and the package's own reader; packed files and pipes."""

import gzip
import os
import string
import sys
import threading

import numpy as np
import pandas as pd
import pandas.io.parsers.readers as pandas_readers
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

import circurve as cc
from circurve.data import read_table
from circurve.data.text import parse_text
from circurve.errors import DataError
from circurve.schema import Coding

pl = pytest.importorskip("polars")

PEOPLE = "age,smoker,city,born,note\n30.5,true,Rome,2024-01-31,\n,false,,2024-02-01,?\n41,,Oslo,,NA\n"
CODES = [[30.5, 1, 1, 0, np.nan], [np.nan, 0, np.nan, 1, np.nan], [41, np.nan, 0, np.nan, np.nan]]
CODINGS = (
    Coding(),
    Coding("boolean"),
    Coding("category", ("Oslo", "Rome")),
    Coding("date", None, "2024-01-31"),
    Coding(),
)


def without_pyarrow(monkeypatch):
    monkeypatch.setattr("circurve.data.arrow.find_spec", lambda name: None)


def without_pandas(monkeypatch):
    monkeypatch.setattr("circurve.data.arrow._pandas_for", lambda table, line: None)


def with_pandas(monkeypatch):
    """Several threads of pandas, also for short texts."""
    for name, value in (("READ_MIN_BYTES", 64), ("MIN_CHUNK_ROWS", 2), ("CHUNK_BYTES", 100)):
        monkeypatch.setattr(pandas_readers, f"_PARALLEL_{name}", value, raising=False)


def both(text, path="x.csv", **options):
    """The table as each reader reads it."""
    with pytest.MonkeyPatch.context() as patch:
        without_pyarrow(patch)
        own = parse_text(text.encode(), path, **options)
    return parse_text(text.encode(), path, **options), own


def same(one, other):
    np.testing.assert_array_equal(one, other)
    assert one.dtype == other.dtype
    assert (one.columns, one.codings) == (other.columns, other.codings)
    assert [one.cell(row, 0) for row in range(len(one))] == [other.cell(row, 0) for row in range(len(other))]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_columns_of_every_kind_are_read_alike(separator, end):
    fast, own = both(PEOPLE.replace(",", separator).replace("\n", end))
    same(fast, own)
    np.testing.assert_array_equal(fast, CODES)
    assert fast.codings == CODINGS
    assert fast.source == f"pyarrow {pa.__version__}"
    assert own.source == "circurve"


fields = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.floats(-1e6, 1e6).map(repr),
    st.sampled_from(["", "NA", "nan", "?", "None", "n/a", " 1", "+3", "007", "1e3", "inf", "1_000"]),
    st.sampled_from(["true", "False", "TRUE", "2024-01-31", "2024-02-30", "2024-01-31 12:30", "12:30:00", "0x1f"]),
    st.text(string.ascii_letters + string.digits + " .-é'", max_size=6),
)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_both_readers_agree_on_any_fields(data):
    """One kind of field for each column, so that most columns are of one kind; the same table or the same message."""
    kinds = [st.sampled_from(data.draw(st.lists(fields, min_size=1, max_size=3))) for _ in range(3)]
    rows = data.draw(st.lists(st.tuples(*kinds), min_size=1, max_size=6))
    text = "a,b,c\n" + "".join(",".join(row) + "\n" for row in rows)
    outcomes = []
    for patched in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if patched:
                without_pyarrow(patch)
            try:
                outcomes.append(parse_text(text.encode(), "x.csv", header=True))
            except DataError as error:
                outcomes.append(str(error))
    one, other = outcomes
    assert type(one) is type(other)
    if isinstance(one, str):
        assert one == other
    else:
        same(one, other)


@pytest.mark.parametrize(
    "text",
    [
        'a,b\n"x, y",1\n"z\nz",2\n\n"",3\n',
        "a,b\n1, 2\n 3,4\n",
        'a,b\n1, "x"\n2, "y"\n',
        "a,b\nx,12:30:00\ny,13:00:00\n",
        "\n\na,b\nx,1\n\ny,2\n",
        "a,b\n1,2.5\n2,\n",
        "1.5,2\n3,4\n",
        "a,b\nx,1\ny,99999999999999999999\n",
    ],
)
def test_both_readers_agree_on_odd_text(text):
    same(*both(text))


ODD_ROWS = [
    (None, "pyarrow"),
    (("7000,0.5", "7000,"), "pyarrow"),
    (("7000,0.5", "7000,x"), None),
    (("7000,0.5", "7000,-inf"), None),
    (("7000,0.5", "0x1b58,0.5"), None),
    (("7000,0.5", "7000,0.5\n\n"), "pyarrow"),
    (("7000,0.5", "7000,0.5,1"), None),
    (("7000,0.5", '"7000",0.5'), "pyarrow"),
    (("7000,0.5", "99999999999999999999,0.5"), "pyarrow"),
    (("7000,0.5\n", "7000,0.5\r"), "pyarrow"),
]
"""A change of one row, and the reader that takes the file then; None: it is refused."""

FRACTIONS, PARTS = ("0.5", "1.0", "12", "70000"), (1 << 13, 1 << 15)


@pytest.mark.parametrize(
    ("change", "reader", "fraction", "part"),
    [
        (change, reader, fraction, PARTS[(i + j) % 2])  # every pair of two of these
        for i, (change, reader) in enumerate(ODD_ROWS)
        for j, fraction in enumerate(FRACTIONS)
    ],
)
def test_a_large_file_is_read_as_the_own_reader_reads_it(tmp_path, monkeypatch, change, reader, fraction, part):
    """Several parts and blocks, with one odd row far from the start, which a look at the first rows does not show."""
    monkeypatch.setattr("circurve.data.arrow.BLOCK", 1 << 12)
    monkeypatch.setattr("circurve.data.arrow.FIRST_PART", 1 << 12)
    monkeypatch.setattr("circurve.data.arrow.PART", part)
    text = "a,b\n" + "".join(f"{n},0.5\n" for n in range(10_000))
    text = text.replace(*(change or ("", ""))).replace(",0.5", f",{fraction}")
    (tmp_path / "x.csv").write_bytes(text.encode())
    outcomes = of_each_reader(tmp_path / "x.csv")
    if reader is None:
        assert isinstance(outcomes[0], str)
        assert outcomes[0] == outcomes[1] == outcomes[2]
    else:
        same(outcomes[0], outcomes[1])
        same(outcomes[0], outcomes[2])
        assert outcomes[1].source.startswith(reader)


PARALLEL = Version(pd.__version__) >= Version("3.1")
needs_parallel_pandas = pytest.mark.skipif(not PARALLEL, reason="older versions of pandas read with one thread")


@needs_parallel_pandas
@pytest.mark.parametrize(("other", "readers"), [(7.25, f" and pandas {pd.__version__}"), (np.nan, "")])
def test_pandas_reads_real_numbers_where_it_is_imported_and_the_source_says_so(tmp_path, other, readers):
    (tmp_path / "x.csv").write_text("a,b\n" + f"0.5,{other}\n" * 40_000)
    table = read_table(tmp_path / "x.csv")
    assert table.source == f"pyarrow {pa.__version__}{readers}"
    np.testing.assert_array_equal(table, [[0.5, other]] * 40_000)


@pytest.mark.parametrize("version", [None, "3.0.2", "2.3.3", "unknown"])
def test_without_a_new_pandas_pyarrow_reads(tmp_path, monkeypatch, version):
    (tmp_path / "x.csv").write_text("a,b\n" + "0.5,7.25\n" * 40_000)
    if version is None:
        monkeypatch.delitem(sys.modules, "pandas")
    else:
        monkeypatch.setattr(pd, "__version__", version)
    assert read_table(tmp_path / "x.csv").source == f"pyarrow {pa.__version__}"


@needs_parallel_pandas
def test_numbers_that_pandas_reads_are_those_nearest_to_the_text(tmp_path):
    values = np.random.default_rng(0).integers(0, 2**63, 30_000).view(np.float64)
    values = values[np.isfinite(values)][:20_000].reshape(-1, 4)
    (tmp_path / "x.csv").write_text("".join(",".join(map(repr, row)) + "\n" for row in values.tolist()))
    table = read_table(tmp_path / "x.csv")
    assert "pandas" in table.source
    np.testing.assert_array_equal(np.asarray(table), values)


def of_each_reader(path):
    """What the own reader, pyarrow, and pandas make of a file: a table, or a message."""
    outcomes = []
    for prepare in (without_pyarrow, without_pandas, with_pandas):
        with pytest.MonkeyPatch.context() as patch:
            prepare(patch)
            try:
                outcomes.append(read_table(path))
            except DataError as error:
                outcomes.append(str(error))
    return outcomes


ODD = [
    "\n",
    "\r",
    "\n\n",
    "\r\r\n",
    "\n \n",
    ",",
    ",,",
    "\n,",
    "7,8\n",
    "7,8,9\n",
    "'",
    " ",
    "\t",
    ";",
    "#",
    "\\",
    "\0",
    "é",
]
ODD += [
    "NA",
    "nan",
    "?",
    "inf",
    "Infinity",
    "True",
    "False",
    "0x1f",
    "1_000",
    "-",
    "+",
    ".",
    "e",
    "1e400",
    "-0.0",
    "\ufeff",
]
places = st.tuples(st.floats(0, 1), st.sampled_from(ODD), st.integers(0, 12), st.booleans())


@given(
    rows=st.lists(st.lists(st.floats(-1e9, 1e9).map(repr), min_size=2, max_size=2), min_size=12, max_size=40),
    header=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
    ended=st.booleans(),
    damage=st.lists(places, max_size=3),
)
@settings(max_examples=150, deadline=None)
def test_all_readers_agree_on_odd_texts(tmp_path_factory, rows, header, end, ended, damage):
    """Real numbers with something else in a few places: at the beginning of a line, or anywhere."""
    text = end.join(",".join(row) for row in ([["a", "b"]] if header else []) + rows) + (end if ended else "")
    for share, odd, replaced, at_line in damage:
        at = int(share * len(text))
        at = text.find("\n", at) + 1 if at_line else at
        text = text[:at] + odd + text[at + replaced :]
    path = tmp_path_factory.mktemp("odd") / "x.csv"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("circurve.data.text.SNIFFED_BYTES", 64)
        patch.setattr("circurve.data.text_layout.SNIFFED_BYTES", 64)
        patch.setattr("circurve.data.arrow.FIRST_PART", 64)
        patch.setattr("circurve.data.arrow.PART", 100)
        own, by_pyarrow, by_pandas = of_each_reader(path)
    assert type(own) is type(by_pyarrow) is type(by_pandas)
    if isinstance(own, str):
        assert own == by_pyarrow == by_pandas
    else:
        same(own, by_pyarrow)
        same(own, by_pandas)
        np.testing.assert_array_equal(np.signbit(own), np.signbit(by_pandas))
        assert damage or not PARALLEL or "pandas" in by_pandas.source


numbers_of_text = st.sampled_from(["12", "3", "-4", "0.5", "1e3", "NA", "nan", "inf", "0x1f", "1_0", "x", "007", "+1"])
gaps = st.sampled_from([" ", "  ", "   ", "\t", " \t", "\x1f", "\u00a0"])


@given(
    fields=st.lists(st.lists(numbers_of_text, min_size=3, max_size=3), min_size=2, max_size=9),
    between=st.lists(gaps, min_size=1, max_size=4),
    edges=st.lists(st.sampled_from(["", "", " ", "  ", "\t"]), min_size=1, max_size=3),
    end=st.sampled_from(["\n", "\r\n", "\n\n", "\r", " \n"]),
    header=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_both_readers_agree_on_fields_with_blanks_between_them(fields, between, edges, end, header):
    text = ""
    for n, row in enumerate(([["a", "b", "c"]] if header else []) + fields):
        edge = edges[n % len(edges)]
        text += edge + between[n % len(between)].join(row) + edge + end
    outcomes = []
    for hide in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if hide:
                without_pyarrow(patch)
            try:
                outcomes.append(parse_text(text.encode(), "x.txt"))
            except DataError as error:
                outcomes.append(str(error))
    own, found = outcomes
    assert type(own) is type(found)
    if isinstance(own, str):
        assert own == found
    else:
        same(own, found)


def test_numbers_with_blanks_between_them_are_read_by_pyarrow():
    found, own = both("  10  2 3\n4    5.5 6 \n7 8 9\n")
    assert found.source.startswith("pyarrow")
    assert own.source == "circurve"
    same(found, own)


@pytest.mark.linux
def test_a_pipe_is_read(tmp_path):
    text = "a,b\n" + "".join(f"{n},0.5\n" for n in range(20_000))
    os.mkfifo(tmp_path / "pipe.csv")
    writer = threading.Thread(target=(tmp_path / "pipe.csv").write_text, args=(text,))
    writer.start()
    table = read_table(tmp_path / "pipe.csv")
    writer.join()
    np.testing.assert_array_equal(table, [[n, 0.5] for n in range(20_000)])


def test_lines_are_counted_as_people_count_them():
    fast, own = both("a,b\n\nx,1\ny,2\n")
    assert fast.cell(0, 1) == own.cell(0, 1) == "column 2 ('b'), line 3"
    assert fast[1:].cell(0, 0) == "column 1 ('a'), line 4"
    model = cc.fit(cc.hclt(fast, 2, [cc.Categorical(2), cc.Categorical(3)]), fast, epochs=1, progress=False).model
    with pytest.raises(DataError, match=r"column 2 \('b'\), line 4: value 7 does not fit"):
        model.log_prob(parse_text(b"a,b\nx,1\n\ny,7\n", "x.csv"), unseen="error")


@pytest.mark.parametrize("header", ["a,a\n1,2\n", "a,b,a\nx,y,z\n"])
def test_repeated_names_are_refused(header):
    with pytest.raises(DataError, match=r"^x\.csv:1: two columns have the name 'a'; rename one of them"):
        parse_text(header.encode(), "x.csv")


def test_packed_text_is_unpacked(tmp_path):
    path = tmp_path / "people.csv.gz"
    path.write_bytes(gzip.compress(PEOPLE.encode()))
    np.testing.assert_array_equal(read_table(path), CODES)
    assert cc.load_data(path).name == "people"
    path.write_bytes(gzip.compress(PEOPLE.encode())[:40])
    with pytest.raises(DataError, match=r"people\.csv\.gz: not a \.gz file, or damaged"):
        read_table(path)
    path.write_bytes(b"plain")
    with pytest.raises(DataError, match=r"people\.csv\.gz: not a \.gz file, or damaged"):
        read_table(path)


def test_a_table_of_text_goes_from_a_file_to_a_model(tmp_path):
    people = pd.DataFrame({"city": ["Rome", "Oslo"] * 30, "n": [0.5, 1.5, 2.5] * 20, "ok": [True, False] * 30})
    people.to_csv(tmp_path / "people.csv", index=False)
    data = cc.load_data(tmp_path / "people.csv")
    model = cc.fit(cc.hclt(data.train, 2), data.train, epochs=2, progress=False, device="cpu").model
    np.testing.assert_array_equal(model.log_prob(data.train), model.log_prob(people[["ok", "city", "n"]]))
