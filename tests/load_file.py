"""Load one file in a process of its own: `python load_file.py model|table PATH`.

Prints [message of the refusal or null, CPU seconds, bytes of memory at the peak].
"""

from __future__ import annotations

import json
import sys
import time

import circurve as cc
import peak_memory
from circurve.data import read_table


def main() -> None:
    kind, path = sys.argv[1:]
    load = cc.load if kind == "model" else read_table
    before, start, message = peak_memory.start(), time.process_time(), None
    try:
        kept = load(path)
    except cc.CircurveError as error:
        kept, message = None, f"{type(error).__name__}: {error}"
    print(json.dumps([message, time.process_time() - start, peak_memory.growth(before)]))
    del kept


if __name__ == "__main__":
    main()
