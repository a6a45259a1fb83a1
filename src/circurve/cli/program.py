"""The program `circurve`: its commands, and how errors, warnings and Ctrl-C are handled."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from circurve._version import __version__
from circurve.cli.commands.data import DataDownload, DataInfo, DataList
from circurve.cli.commands.function import Command
from circurve.cli.commands.models import Evaluate, Impute, Info, ModelCurvature, Query, Sample
from circurve.cli.commands.reproduction import Reproduce
from circurve.cli.commands.shards import Merge, Statistics
from circurve.cli.commands.training import Demo, Fit, Sweep
from circurve.cli.failures import FAILED, INTERRUPTED, NO_SPACE, Options, one_line_warnings, report
from circurve.cli.pipes import CLOSED_PIPE, flush_output
from circurve.cli.signals import exit_code, ignore_signals, listen, without_signals
from circurve.errors import CircurveError, WorkerError

__all__ = ["app", "main"]

DEBUG = "--debug"

WORKERS = "circurve.cli.workers"
"""The module of parallel training; commands that do not train have not imported it."""


class PlainCommand(TyperCommand):
    """A command whose help shows what to type, not the types of Python."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The arguments and options of the command."""
        return [_without_type(parameter) for parameter in super().get_params(ctx)]


class Group(TyperGroup):
    """A group of commands, with the same help."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of the group."""
        return [_without_type(parameter) for parameter in super().get_params(ctx)]


def _without_type(parameter: Any) -> Any:
    """The parameter, whose help has its placeholder (`FILE`) or its choices; nothing for flags and arguments."""
    shown = getattr(type(parameter), "display_type_rich", None)  # not in older versions of typer, which show no types
    if shown is not None:
        silent = parameter.param_type_name == "argument" or parameter.is_flag
        parameter.display_type_rich = lambda ctx: "" if silent else shown(parameter, ctx).strip("<>")
    return parameter


class Program(Group):
    """The group of all commands; every way into it ends with an exit code, and every error with one line."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> Any:
        """Run one command and exit. `--debug` may be anywhere in the command line."""
        given = list(sys.argv[1:] if args is None else args)
        debug = DEBUG in given
        rest = [word for word in given if word != DEBUG]
        options = Options(dict(_options(self)), dict(_options(_typed_command(self, rest))))
        with one_line_warnings(options):
            try:
                code = super().main(rest, prog_name="circurve", standalone_mode=False)
            except Exception as error:  # whatever went wrong, the user sees one line
                with without_signals():
                    code = _code_of_output(error) or report(error, options, debug)
            except SystemExit as ended:  # by click and rich with 1 where output is closed; by shell completion with 0
                code = CLOSED_PIPE if ended.code else 0
            except KeyboardInterrupt:  # before the command began
                print("circurve: interrupted", file=sys.stderr)
                code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)

    def make_context(self, *words: Any, **options: Any) -> Any:
        """Read the words of the command line."""
        try:
            return super().make_context(*words, **options)
        except KeyboardInterrupt:  # typer would end without a line
            print("circurve: interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command; Ctrl-C is handled here unless the command handles it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            lost = _lost_worker(interrupt)
            if lost is not None:
                raise lost from lost.__cause__
            print("circurve: interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


def _lost_worker(interrupt: KeyboardInterrupt) -> WorkerError | None:
    """The loss of another worker that was being handled when the signal came: torchrun sends one to those left."""
    error = interrupt.__context__
    while error is not None and not isinstance(error, WorkerError):
        error = error.__context__
    return error


def _typed_command(group: Any, words: Sequence[str]) -> Any:
    """The command that was typed; the group itself if there is none."""
    command, *rest = (*(word for word in words if not word.startswith("-")), "")
    found = getattr(group, "commands", {}).get(command)
    return group if found is None else _typed_command(found, rest)


def _options(command: Any) -> Iterator[tuple[str, str]]:
    """The options of a command and of all below it, by their names in Python."""
    for part in getattr(command, "commands", {}).values():
        yield from _options(part)
    for parameter in command.params:
        if parameter.param_type_name == "option":
            yield parameter.name, parameter.opts[0]


app = typer.Typer(
    cls=Program,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"circurve {__version__}")
        raise typer.Exit


def _help_if_alone(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


@app.callback(invoke_without_command=True)
def _program(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error.")] = False,
) -> None:
    """Train probabilistic circuits on tables, ask them questions, and inspect them.

    Exit codes of all commands: 0 done, 1 failed while working, 2 wrong options
    or unusable data, 130 interrupted by Ctrl-C, 143 ended by SIGTERM, 129 ended
    by SIGHUP, 141 output closed by its reader (as in `circurve data list | head`).
    An interrupted training saves the model trained so far.
    """
    _help_if_alone(ctx)


data_app = typer.Typer(cls=Group, help="Look at data sets and data files.")
data_app.callback(invoke_without_command=True)(_help_if_alone)

COMMANDS = (
    Command("demo", Demo, "circurve.cli.demo", "demo"),
    Command("fit", Fit, "circurve.cli.fit", "fit"),
    Command("evaluate", Evaluate, "circurve.cli.evaluate", "evaluate"),
    Command("curvature", ModelCurvature, "circurve.cli.curvature", "curvature"),
    Command("query", Query, "circurve.cli.query", "query"),
    Command("sample", Sample, "circurve.cli.rows", "sample"),
    Command("impute", Impute, "circurve.cli.rows", "impute"),
    Command("sweep", Sweep, "circurve.cli.sweep", "sweep"),
    Command("reproduce", Reproduce, "circurve.cli.reproduce", "reproduce_command"),
    Command("statistics", Statistics, "circurve.cli.shards", "statistics"),
    Command("merge", Merge, "circurve.cli.shards", "merge"),
    Command("info", Info, "circurve.cli.info", "info"),
)
DATA_COMMANDS = (
    Command("list", DataList, "circurve.cli.data", "list_known"),
    Command("info", DataInfo, "circurve.cli.data", "describe"),
    Command("download", DataDownload, "circurve.cli.data", "download"),
)
for program, commands in ((app, COMMANDS), (data_app, DATA_COMMANDS)):
    for command in commands:
        program.command(command.name, cls=PlainCommand)(command.as_function())
app.add_typer(data_app, name="data")


def _code_after_output(code: object) -> object:
    """The exit code, once all output is written; another one for a command that ended well and cannot write it."""
    error = flush_output()
    return code if error is None or code not in (0, None) else _told(error)


def _code_of_output(error: Exception) -> int | None:
    """The exit code if the error is that output cannot be written, after one line that says so; else None."""
    if not isinstance(error, OSError) or isinstance(error, CircurveError) or error.filename is not None:
        return None
    found = flush_output() or (error if error.errno in NO_SPACE else None)
    return None if found is None else _told(found)


def _told(error: OSError) -> int:
    """The exit code where output cannot be written, after one line that says so."""
    if isinstance(error, BrokenPipeError):
        return CLOSED_PIPE
    print(f"circurve: error: output cannot be written: {error.strerror}", file=sys.stderr)
    return FAILED


def main() -> None:
    """The entry point of the installed command."""
    received, code = listen(), cast("object", INTERRUPTED)
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a question mark is better than no results
        app()
    except SystemExit as ended:
        code = ended.code
    except KeyboardInterrupt:
        print("circurve: interrupted", file=sys.stderr)
    except BrokenPipeError:  # nobody reads the message about an error
        code = CLOSED_PIPE
    ignore_signals()
    code = _code_after_output(code)
    if code in (0, None) and WORKERS in sys.modules:  # after an error another worker may be gone: do not wait for it
        sys.modules[WORKERS].leave_workers()
    sys.exit(cast("int", exit_code(code, INTERRUPTED, received)))
