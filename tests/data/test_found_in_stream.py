"""Schemas of files that are read block by block: those of the same frames in memory, from a few rows at a time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import date, datetime

import numpy as np
import pytest

import circurve as cc
import peak_memory
from circurve.data import found_in_stream
from circurve.errors import CircurveWarning, DataError, OptionError

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS = 3000
RNG = np.random.default_rng(0)
DAYS = [date(2024, 1, 1 + k % 28) for k in range(ROWS)]
COLUMNS = {
    "zeros and ones": RNG.integers(0, 2, ROWS),
    "one value": np.full(ROWS, 7),
    "few whole": RNG.integers(-3, 9, ROWS),
    "poisson": RNG.poisson(30, ROWS),
    "binomial": RNG.binomial(60, 0.6, ROWS),
    "large whole": RNG.integers(-(10**6), 10**6, ROWS),
    "real": RNG.normal(5, 2, ROWS),
    "real late": np.where(np.arange(ROWS) < 2900, 4.0, 0.5),
    "gaps": [None if k % 3 else k % 5 for k in range(ROWS)],
    "nothing": pa.array([None] * ROWS, pa.float64()),
    "bool": RNG.random(ROWS) < 0.5,
    "bool after gaps": [None] * 2500 + [True, False] * 250,
    "text": np.array(["b", "a", "c"])[np.sort(RNG.integers(0, 3, ROWS))],
    "text after gaps": [None] * 2000 + ["x", "y"] * 500,
    "dictionary": pa.array(np.array(["u", "v"])[RNG.integers(0, 2, ROWS)]).dictionary_encode(),
    "days": DAYS[::-1],
    "times at the end": [datetime(2024, 3, 1)] * 2800 + [datetime(2024, 2, 1, 5, 30)] * 200,
}


def written(tmp_path, columns, monkeypatch):
    """A file with blocks of 100 rows."""
    path = tmp_path / "data.parquet"
    parquet.write_table(pa.table(columns), path, row_group_size=100)
    monkeypatch.setattr("circurve.data.readers.BLOCK_ROWS", 100)
    return path


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_has_the_schema_that_it_has_in_memory(name, tmp_path, monkeypatch):
    path = written(tmp_path, {name: COLUMNS[name]}, monkeypatch)
    assert len(list(cc.open_stream(path).reader.column_pieces(name))) == ROWS // 100
    assert cc.infer_schema(path, unseen_share=0.01) == cc.infer_schema(
        pa.table({name: COLUMNS[name]}), unseen_share=0.01
    )


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("few whole", "categorical"),
        ("large whole", "categorical"),
        ("text", "categorical"),
        ("poisson", "binomial"),
        ("poisson", "gaussian"),
        ("binomial", cc.Binomial(99)),
        ("days", "gaussian"),
    ],
)
def test_a_told_column_has_the_schema_that_it_has_in_memory(name, told, tmp_path, monkeypatch):
    path = written(tmp_path, {name: COLUMNS[name]}, monkeypatch)
    monkeypatch.setattr(found_in_stream, "MAX_DISTINCT", 20)
    in_memory = cc.infer_schema(pa.table({name: COLUMNS[name]}), types={name: told})
    assert cc.infer_schema(path, types={name: told}) == in_memory


@pytest.mark.parametrize(("name", "told"), [("few whole", "poisson"), ("text", "poisson"), ("poisson", "bernoulli")])
def test_a_type_that_does_not_fit_has_the_message_that_it_has_in_memory(name, told, tmp_path, monkeypatch):
    path = written(tmp_path, {name: COLUMNS[name]}, monkeypatch)
    with pytest.raises(OptionError) as in_memory:
        cc.infer_schema(pa.table({name: COLUMNS[name]}), types={name: told})
    with pytest.raises(OptionError, match=re.escape(str(in_memory.value))):
        cc.infer_schema(path, types={name: told})


def test_text_that_names_rows_is_refused_without_reading_all_of_it(tmp_path, monkeypatch):
    path = written(tmp_path, {"name": [f"row {k}" for k in range(ROWS)]}, monkeypatch)
    with pytest.raises(DataError, match=r"\('name'\): 3000 different texts in 3000 rows, such as 'row 0', look like"):
        cc.infer_schema(path)
    monkeypatch.setattr(found_in_stream, "MAX_DISTINCT", 1000)
    with pytest.raises(
        DataError, match=r"\('name'\): at least 1100 different texts in 1100 rows, such as 'row 0', look"
    ):
        cc.infer_schema(path)


def test_a_mark_of_missing_values_is_noticed(tmp_path, monkeypatch):
    path = written(tmp_path, {"one": [1] * 3000, "marked": [-1, 0, 1] * 1000}, monkeypatch)
    with pytest.warns(CircurveWarning, match=r"column 2 \('marked'\): whole numbers from -1 up, read as Categorical"):
        cc.infer_schema(path)
    assert cc.infer_schema(path, missing=-1).families[1] == cc.Bernoulli()


def test_text_with_categories_of_its_own_in_each_file_is_one_column(tmp_path):
    for number, texts in enumerate((["a", "b"], ["c", "b"], [None, None])):
        parquet.write_table(pa.table({"kind": pa.array(texts * 20, pa.string())}), tmp_path / f"{number}.parquet")
    assert cc.infer_schema(tmp_path).columns[0].categories == ("a", "b", "c")


PEAKS = """
import json, sys
import numpy as np, pyarrow as pa
from pyarrow import parquet
import circurve as cc, peak_memory
from circurve.data.readers import BLOCK_ROWS

pa.set_memory_pool(pa.system_memory_pool())
found = []
for blocks in (2, 10, 100):
    values = np.random.default_rng(0).normal(size=BLOCK_ROWS)
    texts = np.array(["a", "b"])[(values > 0).astype(int)]
    table = pa.table({"real": values, "text": texts, "count": values.astype(int)})
    path = f"{sys.argv[1]}/{blocks}.parquet"
    with parquet.ParquetWriter(path, table.schema) as file:
        for _ in range(blocks):
            file.write_table(table)
    before = peak_memory.start()
    cc.infer_schema(path)
    found.append(peak_memory.growth(before))
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_the_schema_of_more_rows_takes_no_more_memory(tmp_path):
    command, environment = [sys.executable, "-c", PEAKS, str(tmp_path)], peak_memory.environment()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    _, few, many = json.loads(done.stdout)
    assert many < few + (10 << 20)  # one column of the 90 blocks more takes 47 MB
