"""Where data come in: tables of any kind, data files, data sets by name; and the check against a circuit's families."""

from circurve.data import synthetic
from circurve.data.cache import cache_folder
from circurve.data.catalogue import DatasetInfo, download_dataset, list_datasets, load_dataset
from circurve.data.check import Table, encode
from circurve.data.dataset import Dataset
from circurve.data.debd import DEBD
from circurve.data.files import load_data, read_table
from circurve.data.matrix import Matrix, as_matrix
from circurve.data.rows import split_rows, take_fraction

__all__ = [
    "DEBD",
    "Dataset",
    "DatasetInfo",
    "Matrix",
    "Table",
    "as_matrix",
    "cache_folder",
    "download_dataset",
    "encode",
    "list_datasets",
    "load_data",
    "load_dataset",
    "read_table",
    "split_rows",
    "synthetic",
    "take_fraction",
]
