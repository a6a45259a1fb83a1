"""Where data come in: tables of any kind, data files, data sets by name; and the check against a circuit's families."""

from circurve.data import synthetic
from circurve.data.align import align, decode, log_unseen, prepare, warn_of_lost_digits
from circurve.data.bind import align_source, log_unseen_rows, prepare_source
from circurve.data.cache import cache_folder
from circurve.data.catalogue import DatasetInfo, download_dataset, list_datasets, load_dataset
from circurve.data.check import QuickCheck, check
from circurve.data.dataset import Dataset, split_rows, take_fraction
from circurve.data.debd import DEBD
from circurve.data.entry import Examples, as_table
from circurve.data.files import load_data, read_table
from circurve.data.frames import columns_of, make_frame
from circurve.data.infer import infer_families, infer_schema
from circurve.data.open_stream import as_source, is_streamed, open_stream
from circurve.data.pieces import answer_in_pieces
from circurve.data.source import RowSource
from circurve.data.stream import Stream
from circurve.data.table import Table

__all__ = [
    "DEBD",
    "Dataset",
    "DatasetInfo",
    "Examples",
    "QuickCheck",
    "RowSource",
    "Stream",
    "Table",
    "align",
    "align_source",
    "answer_in_pieces",
    "as_source",
    "as_table",
    "cache_folder",
    "check",
    "columns_of",
    "decode",
    "download_dataset",
    "infer_families",
    "infer_schema",
    "is_streamed",
    "list_datasets",
    "load_data",
    "load_dataset",
    "log_unseen",
    "log_unseen_rows",
    "make_frame",
    "open_stream",
    "prepare",
    "prepare_source",
    "read_table",
    "split_rows",
    "synthetic",
    "take_fraction",
    "warn_of_lost_digits",
]
