"""A page to look at: one self-contained HTML file about a model.

The package has the name of its main function, so it is that function, too: `circurve.report(model, data)` and
`circurve.report.report(model, data)` are the same call.
"""

import sys
from inspect import signature
from types import ModuleType
from typing import Any

from circurve.report.build import Report, ReportOptions, conclusion, report
from circurve.report.findings import sentences
from circurve.report.record import Finding, Page

__all__ = ["Finding", "Page", "Report", "ReportOptions", "conclusion", "report", "sentences"]


class CallableModule(ModuleType):
    """A module that calls its function `report` when it is called, and can be pickled as functions can."""

    __signature__ = signature(report)

    def __call__(self, *arguments: Any, **options: Any) -> Report:
        return report(*arguments, **options)

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _this_module, ()


def _this_module() -> ModuleType:
    return sys.modules[__name__]


_this_module().__class__ = CallableModule
