"""`python -m circurve` is the command `circurve`."""

from circurve.cli import main

if __name__ == "__main__":
    main()
