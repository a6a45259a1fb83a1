"""`fit` and `fit_fleet`: users' arguments in, checked records inside, results out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from inspect import signature
from typing import Any, Unpack

from circurve.data import RowSource, Stream, Table, prepare_source, warn_of_lost_digits
from circurve.data.need import check_data
from circurve.data.unseen import Unseen, advising, check_unseen
from circurve.engine import Params, Program, compile, stack
from circurve.engine.memory import free_memory
from circurve.errors import OptionError, warn_user
from circurve.graph import Circuit
from circurve.learning.auto import candidates, choose
from circurve.learning.checkpoints import Checkpoints, open_checkpoints
from circurve.learning.fingerprint import Training
from circurve.learning.history import Callback, FitResult, FleetResult
from circurve.learning.initialize import Initialization, initial_params
from circurve.learning.loop import Trainer
from circurve.learning.methods import Method, Vanilla
from circurve.learning.need import compiling_need, training_need
from circurve.learning.option_texts import refuse_unknown, show_options
from circurve.learning.options import Run, Settings, TrainingOptions
from circurve.learning.parallel import check_same_training, worker, workers
from circurve.learning.progress import progress_bar
from circurve.learning.ray_engine import Engine, FleetTask, check_engine, train_on_ray
from circurve.learning.validation import check_validation, hold_out, say
from circurve.model import Model, as_device
from circurve.schema import Schema

__all__ = ["fit", "fit_fleet"]


class FleetOptions(TrainingOptions, total=False):
    """All keywords of `fit_fleet`; `fit` passes them on."""

    valid: Any
    test: Any
    weights: Any
    labels: Any
    missing: int | None
    schema: Schema | None
    unseen: Unseen
    refit: bool
    start: Model | None
    callbacks: Sequence[Callback]
    progress: bool | None
    engine: Engine


def fit(
    circuit: Circuit,
    train: Any,
    *,
    method: Method | None = None,
    seed: int = Run.seed,
    init: Initialization = Run.init,
    **options: Unpack[FleetOptions],
) -> FitResult:
    """Train a circuit by EM.

    Ctrl-C ends the training and returns what was learned so far (`result.stopped == "interrupted"`). Another one ends
    the computation of the final scores: those that are not known then are NaN.

    Parameters
    ----------
    circuit : Circuit
        The structure, such as `hclt(data, units=32)`.
    train : array, tensor, list, data frame or Table
        (N, V), NaN for missing; columns with names are ordered by name.
    valid : array, data frame, float or False, optional
        Rows to choose by, or the share of the training rows to hold out, such as 0.1; False for none. None holds 10 %
        out if they are needed: for mu="auto", gate="auto", `by_overfitting`, patience and select="best", and for tables
        of at least 200 rows with fewer values than the circuit has parameters. `result.rows` lists the rows.
    test : array or data frame, optional
        Rows to score only.
    weights, labels : array, optional
        (N,): how much each training row counts, also where rows are drawn to start from; which output of a circuit with
        several roots it belongs to. The circuit is given: pass `Examples(data, weights)` to `hclt` as well.
    missing : int, optional
        A number that marks missing values in all tables, in addition to NaN.
    schema : Schema, optional
        What the columns mean. None is the circuit's own, or else the names of `train`. The model keeps it.
    unseen : {{"missing", "impossible", "error"}}, default "missing"
        Values of `valid` and `test` that were not seen in training: "missing" leaves them out of the scores, with a
        warning; "impossible" makes the scores -inf; "error" refuses them.
    method : Vanilla, Global or Gated, default Vanilla()
        `Global(mu)` and `Gated(mu)` penalise curvature; mu="auto" chooses the strength by validation likelihood, with
        all candidates trained in one pass (`result.path`). Plain EM, mu=0, is one of them and is chosen unless another
        is better by more than one standard error.
    {run}
    {settings}
    refit : bool, default False
        After a choice of mu or gate, train the winner again on training and validation data together.
    start : Model, optional
        Continue from this model's parameters.
    callbacks : sequence of functions, default ()
        Each is given every epoch's event and stops the training by returning True.
    progress : bool, optional
        Show a bar; None does so on a terminal.
    engine : str, default "local"
        Where to train: "local", in this process, or "ray", as a task of a Ray cluster (see `fit_fleet`).

    Returns
    -------
    FitResult
        With `.model`, `.train_ll`, `.valid_ll`, `.test_ll` (means in nats), `.history` and `.to_frame()`.

    Raises
    ------
    DataError, OptionError
        If data or options do not fit; the message names the column or option.
    TrainingError
        If parameters, statistics or likelihoods become infinite or NaN.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> circuit = cc.hclt(data.train, units=8)
    >>> result = cc.fit(circuit, data.train, valid=data.valid, epochs=5, seed=0)
    >>> round(result.train_ll, 1), round(result.valid_ll, 1)  # mean log-likelihoods in nats
    (-22.6, -22.4)
    >>> result.model.log_prob(data.test).shape
    (270,)
    """
    refuse_unknown(options, signature(fit).parameters, "fit")
    run = Run(method=method if method is not None else Vanilla(), seed=seed, init=init)
    return fit_fleet(circuit, train, [run], **options)[0]


def fit_fleet(  # noqa: PLR0913 - the one call behind all trainings; everything goes into records at once
    circuit: Circuit,
    train: Any,
    runs: Sequence[Run],
    *,
    valid: Any = None,
    test: Any = None,
    weights: Any = None,
    labels: Any = None,
    missing: int | None = None,
    schema: Schema | None = None,
    unseen: Unseen = "missing",
    refit: bool = False,
    start: Model | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    engine: Engine = "local",
    **options: Unpack[TrainingOptions],
) -> FleetResult:
    """Train many runs of one circuit side by side; each equals the same run trained alone by `fit`.

    All runs share the data and the options of `fit`; method, seed, step size and init are each run's own. A run with
    mu="auto" or gate="auto" is trained once for each candidate, in the same pass; its result is the best of them by
    validation likelihood.

    Parameters
    ----------
    circuit : Circuit
        The structure of all runs.
    train : array, tensor, list, data frame or Table
        The rows of all runs.
    runs : sequence of Run
        At least one.
    valid, test, weights, labels, missing, schema, unseen : as in `fit`
        The data and what belongs to them.
    epochs, batch_size, step_size, tolerance, patience, select : as in `fit`
        How long and how far to train.
    device, precision, backend, memory_budget, track, checkpoint, checkpoint_every : as in `fit`
        Where and how to compute.
    refit, start, callbacks, progress : as in `fit`
        What happens around the training.
    engine : {"local", "ray"}, default "local"
        Train all runs in this process, or parts of the fleet as tasks of a Ray cluster: the one that `ray.init` has
        connected to, or a local one. A part whose worker is lost is trained again.

    Returns
    -------
    FleetResult
        One `FitResult` for each run, in order; `.best()`, `.models`, `.ensemble(valid)`, `.to_frame()`.

    Raises
    ------
    TrainingError
        If all runs fail. A single run that fails stops with `result.failed` and a warning, and the others continue.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> runs = [cc.Run(cc.Vanilla(pseudocount), seed=0) for pseudocount in (0, 0.01, 0.1)]
    >>> fleet = cc.fit_fleet(cc.hclt(data.train, units=8), data.train, runs, valid=data.valid, epochs=5)
    >>> [round(result.valid_ll, 1) for result in fleet]
    [-22.4, -22.4, -22.5]
    >>> fleet.best().run.method
    Vanilla()
    """
    refuse_unknown(options, signature(fit_fleet).parameters, "fit_fleet", [option.name for option in fields(Run)])
    settings = Settings.of(options)
    _check(circuit, runs, callbacks)
    check_unseen(unseen)
    check_validation(runs, settings, refit, possible=valid is not False)
    check_data("training", settings.memory_budget, train, *(part for part in (valid, test) if part is not None))
    with advising("make the circuit from rows that have it, or leave the cell empty", "unseen"):
        rows = prepare_source(train, circuit, "train", schema=schema, weights=weights, labels=labels, missing=missing)
    if refit and isinstance(rows, Stream):
        raise OptionError("refit joins training and validation rows, which must be in memory; it cannot use a stream")
    held = hold_out(rows, circuit, runs, settings, valid)
    if "valid" in held.parts and progress is not False:
        say(held, rows)
    prepared = dict(held.parts)
    for name, part in (("valid", valid), ("test", test)):
        if part is not None and not isinstance(part, bool | float):
            prepared[name] = prepare_source(part, circuit, name, schema=rows.schema, missing=missing, unseen=unseen)
    warn_of_lost_digits(prepared["train"], circuit.families, settings.dtype)
    task = FleetTask(circuit, prepared, held.rows, tuple(runs), settings, refit)
    if check_engine(engine, prepared, start, callbacks) == "ray":
        results = train_on_ray(task, train_task)
    else:
        results = train_task(task, start, callbacks, progress)
    results.check_any_left()
    return results


def train_task(
    task: FleetTask, start: Model | None = None, callbacks: Sequence[Callback] = (), progress: bool | None = False
) -> FleetResult:
    """Train a fleet, or a part of one, whose data are prepared; all of its runs may have failed."""
    circuit, prepared, runs, settings, refit = task.circuit, task.prepared, task.runs, task.settings, task.refit
    place, dtype = as_device(settings.device), settings.dtype
    groups = [candidates(run) for run in runs]
    fleet = [run for group in groups for run in group]

    def free() -> int:
        return free_memory(place)

    training_need(circuit, fleet, settings, prepared).left(settings.memory_budget, free)
    if start is None:
        compiling_need(circuit, prepared).left(settings.memory_budget if place.type == "cpu" else None)
    program = compile(circuit) if start is None else _same_structure(start, circuit)
    left = training_need(circuit, fleet, settings, prepared, program).left(settings.memory_budget, free)
    settings = replace(settings, memory_budget=left)  # what is left is for buffers

    def begin() -> Params:
        starts, of_run = _starts(program, fleet, prepared["train"], start)
        return starts.to(place, dtype).select(of_run)

    training = Training(circuit, prepared, fleet, settings, start, {"refit": str(refit)})
    samples = {name: table.to(place) for name, table in prepared.items()}
    with _checkpoints(training, progress) as checkpoints, progress_bar(settings.epochs, progress) as bar:
        results = Trainer(program, fleet, settings, samples).train(begin, [*callbacks, *bar], checkpoints)
    results = FleetResult(tuple(replace(result, rows=task.rows) for result in results))
    chosen = choose(runs, groups, results, prepared.get("valid"))
    if not refit or any(result.stopped == "interrupted" for result in (*results, *chosen)):
        return chosen
    return _refit_all(chosen, lambda: begin().select([fleet.index(result.run) for result in chosen]), settings, samples)


@contextmanager
def _checkpoints(training: Training, progress: bool | None) -> Iterator[Checkpoints | None]:
    """The checkpoints of a training, where they are asked for; says if it continues from one.

    Also refuses workers of a process group that have different trainings.
    """
    if training.settings.checkpoint is None and workers() == 1:
        yield None
        return
    facts = training.facts()
    check_same_training(facts, as_device(training.settings.device))
    with open_checkpoints(training.settings, facts) as found:
        if found is not None and found.newest is not None and progress is not False and worker() == 0:
            print(f"circurve: continuing after {found.newest} of checkpoint {found.folder}", file=sys.stderr)
        yield found


def _refit_all(
    chosen: FleetResult, begin: Callable[[], Params], settings: Settings, samples: Mapping[str, RowSource]
) -> FleetResult:
    """Every winner of a choice trained again. After an interrupt, those that were not, or not up to their epoch, are as
    they were chosen."""
    results, number = list(chosen), 0
    try:
        starts = begin()
        for number, winner in enumerate(chosen):
            results[number] = _refit(number, winner, settings, starts.select([number]), samples)
            if results[number].stopped == "interrupted":
                break
    except KeyboardInterrupt:
        results[number] = replace(chosen[number], stopped="interrupted")
    return FleetResult(tuple(results))


def _refit(
    number: int, winner: FitResult, settings: Settings, start: Params, samples: Mapping[str, RowSource]
) -> FitResult:
    """Train the winner of a choice again, on training and validation data together, up to the epoch that was chosen."""
    if not winner.path or winner.failed:
        return winner
    train, valid = samples["train"], samples["valid"]
    assert isinstance(train, Table)
    assert isinstance(valid, Table)
    data: dict[str, RowSource] = {"train": train + valid, **{n: s for n, s in samples.items() if n == "test"}}
    settings = replace(settings, select="last", patience=None, tolerance=None)
    settings = settings.part(f"refit-{number}")
    until = {"until epoch": str(winner.epoch)}
    training = Training(winner.model.circuit, data, [winner.run], settings, None, until)
    trainer = Trainer(winner.model.program, [winner.run], settings, data)
    with _checkpoints(training, False) as checkpoints:
        again = trainer.train(lambda: start, [lambda event: event.epoch >= winner.epoch], checkpoints)[0]
    if again.failure is not None:
        failed = f"the refit of {winner.run.name(number)} failed in epoch {again.failure.epoch}"
        warn_user(f"{failed}: {again.failure.reason}; the model chosen before is kept")
        return replace(winner, stopped=again.stopped, failure=again.failure)
    if again.stopped == "interrupted" and len(again.history) < winner.epoch:
        return replace(winner, stopped="interrupted")
    stopped = again.stopped if again.stopped == "interrupted" else winner.stopped
    return replace(again, path=winner.path, stopped=stopped, rows=winner.rows)


def _check(circuit: object, runs: object, callbacks: object) -> None:
    """Refuse arguments of the wrong kind: each of these is easily mistaken for another."""
    if not isinstance(circuit, Circuit):
        raise OptionError(f"circuit must be a Circuit, not {type(circuit).__name__}")
    if not isinstance(runs, Sequence) or not runs:
        raise OptionError(f"runs must be a list of at least one Run, not {runs!r}")
    wrong = [run for run in runs if not isinstance(run, Run)]
    if wrong:
        raise OptionError(f"runs must hold Run(...) only, not {wrong[0]!r}")
    if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
        raise OptionError(f"callbacks must be a list of functions, not {callbacks!r}")


def _starts(
    program: Program, runs: Sequence[Run], train: RowSource, start: Model | None
) -> tuple[Params, Sequence[int]]:
    """All different starting parameters, and which of them each run has: runs of one seed and init start alike."""
    if start is not None:
        return start.params, [0] * len(runs)
    kinds = list(dict.fromkeys((run.seed, run.init) for run in runs))
    drawn = stack([initial_params(program, seed, train, init) for seed, init in kinds])
    return drawn, [kinds.index((run.seed, run.init)) for run in runs]


def _same_structure(start: Model, circuit: Circuit) -> Program:
    if not isinstance(start, Model):
        raise OptionError(f"start must be a Model, not {type(start).__name__}")
    if start.circuit is not circuit:
        raise OptionError("start: the model has another circuit; pass model.circuit as the circuit")
    return start.program


show_options(fit, fit_fleet, Run, Settings)
