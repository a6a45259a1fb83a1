"""The command line: parses options, calls the library, prints tables or one JSON document."""

from circurve.errors import needs

with needs("cli", "the command circurve"):
    from circurve.cli.program import app, main

__all__ = ["app", "main"]
