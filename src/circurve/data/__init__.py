"""Where data come in: tables of any kind, data files, data sets by name; and the check against a circuit's families."""

from circurve.data import synthetic
from circurve.data.cache import cache_folder
from circurve.data.catalogue import DatasetInfo, download_dataset, list_datasets, load_dataset
from circurve.data.check import check, check_alike, prepare, warn_of_lost_digits
from circurve.data.dataset import Dataset, split_rows, take_fraction
from circurve.data.debd import DEBD
from circurve.data.entry import Examples, as_table
from circurve.data.files import load_data, read_table
from circurve.data.quick import QuickCheck
from circurve.data.table import Column, Schema, Table

__all__ = [
    "DEBD",
    "Column",
    "Dataset",
    "DatasetInfo",
    "Examples",
    "QuickCheck",
    "Schema",
    "Table",
    "as_table",
    "cache_folder",
    "check",
    "check_alike",
    "download_dataset",
    "list_datasets",
    "load_data",
    "load_dataset",
    "prepare",
    "read_table",
    "split_rows",
    "synthetic",
    "take_fraction",
    "warn_of_lost_digits",
]
