"""Output that cannot be written at the end: nobody reads it any more (`circurve data list | head -1`), or no space.

A command whose reader is gone ends silently with code 141, as one that SIGPIPE (13) ends: 128 + 13.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

__all__ = ["CLOSED_PIPE", "flush_output"]

CLOSED_PIPE = 141


def flush_output() -> OSError | None:
    """Write what standard output and standard error still hold; the error of the first that cannot be written.

    Such a stream is discarded from then on: Python would write to it again, and print a traceback, when it ends.
    """
    found: OSError | None = None
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError as error:
            found = found or error
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
    return found
