"""Studies of the paper: specifications as data, a runner that resumes, tables and figures made from its records."""

from circurve.reproduction.outputs import reproduce
from circurve.reproduction.records import RecordFile, read_records
from circurve.reproduction.runner import run_study
from circurve.reproduction.spec import (
    BEST,
    PAPER,
    PAPER_OWN,
    SMOOTHED,
    Protocol,
    ReproduceOptions,
    Setting,
    Study,
    make_study,
)

__all__ = [
    "BEST",
    "PAPER",
    "PAPER_OWN",
    "SMOOTHED",
    "Protocol",
    "RecordFile",
    "ReproduceOptions",
    "Setting",
    "Study",
    "make_study",
    "read_records",
    "reproduce",
    "run_study",
]
