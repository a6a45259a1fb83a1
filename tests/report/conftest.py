"""One trained model and its page for all tests of reports."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import pytest
from page_helpers import data_of, fitted

import circurve as cc
from circurve.learning.history import FitResult
from circurve.report import Report


@dataclass(frozen=True)
class Made:
    """A result, its rows and its page."""

    result: FitResult
    train: pd.DataFrame
    valid: pd.DataFrame
    report: Report
    data: dict


@pytest.fixture(scope="package")
def made() -> Made:
    result, train, valid = fitted()
    report = cc.report(result, train, valid=valid)
    return Made(result, train, valid, report, data_of(report.html))
