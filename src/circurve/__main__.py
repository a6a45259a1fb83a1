"""The command `circurve`, also `python -m circurve`."""

import sys

from circurve.errors import MissingPackageError

__all__ = ["main"]


def main() -> None:
    """Run the command line, or say in one line what to install for it."""
    try:
        from circurve.cli import main as run  # noqa: PLC0415 - its packages are an extra
    except MissingPackageError as error:
        print(f"circurve: error: {error}", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
