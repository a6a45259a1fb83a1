"""Where data come in: tables of any kind, data files, data sets by name; and the check against a circuit's families."""

from circurve.data.check import Table, encode
from circurve.data.dataset import Dataset, DatasetInfo, list_datasets, load_dataset, split_rows
from circurve.data.files import load_data, read_table
from circurve.data.matrix import Matrix, as_matrix

__all__ = [
    "Dataset",
    "DatasetInfo",
    "Matrix",
    "Table",
    "as_matrix",
    "encode",
    "list_datasets",
    "load_data",
    "load_dataset",
    "read_table",
    "split_rows",
]
