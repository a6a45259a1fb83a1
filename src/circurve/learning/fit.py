"""`fit` and `fit_fleet`: users' arguments in, checked records inside, results out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from circurve.data import Table, check_alike, prepare, warn_of_lost_digits
from circurve.engine import Backend, Params, Program, compile, stack
from circurve.errors import OptionError
from circurve.graph import Circuit
from circurve.learning.auto import candidates, choose, needs_choice
from circurve.learning.history import FitResult, FleetResult
from circurve.learning.initialize import Initialization, initial_params
from circurve.learning.loop import Callback, Trainer
from circurve.learning.methods import Method, Vanilla
from circurve.learning.options import PRECISIONS, Run, Settings
from circurve.learning.progress import progress_bar
from circurve.learning.schedules import Schedule, by_overfitting
from circurve.model import Model, as_device

__all__ = ["fit", "fit_fleet"]


def fit(  # noqa: PLR0913 - the one call that most users write; everything goes into records at once
    circuit: Circuit,
    train: Any,
    *,
    valid: Any = None,
    test: Any = None,
    weights: Any = None,
    labels: Any = None,
    missing: int | None = None,
    method: Method | None = None,
    seed: int = 0,
    init: Initialization = "random",
    epochs: int = 100,
    batch_size: int | None = 200,
    step_size: float | Schedule | None = None,
    tolerance: float | None = None,
    patience: int | None = None,
    select: Literal["best", "last"] | None = None,
    device: str | torch.device = "auto",
    precision: Literal["float32", "float64", "tf32"] = "float32",
    backend: Backend = "auto",
    memory_budget: int | None = None,
    track: bool = False,
    refit: bool = False,
    start: Model | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> FitResult:
    """Train a circuit by EM.

    train, valid, test: arrays, tensors, lists or data frames (N, V), NaN for missing; or `Examples` with weights,
    labels or another mark for missing values. `weights` and `labels` are short for those of `train`; `missing` marks
    missing values in all three. Data frames must have the same columns in the same order.
    method: `Vanilla()` by default; `Global(mu)` and `Gated(mu)` penalise curvature, and mu="auto" chooses the strength
    by validation likelihood, with all candidates trained in one pass (`result.path`).
    seed fixes all that is random. init: how parameters start, "random" or "prototypes": each unit around a row of the
    training data.
    batch_size: None for full-batch EM. step_size: alpha, a number or a schedule; by default 0.1 for mini-batches and 1
    for the full batch. epochs: passes over the data, at most: patience stops after so many without a better validation
    log-likelihood, tolerance when an epoch raises the training log-likelihood by less.
    select: which epoch's parameters to return, "best" by validation log-likelihood (the default when `valid` is given)
    or "last". track: measure sharpness and gates in every epoch. refit: after a choice of mu or gate, train the winner
    once more on training and validation data together. start: go on from this model's parameters.
    device: "auto" is CUDA where there is one. precision: "tf32" is a faster choice on a GPU, "float64" for checks.
    backend: "auto" takes the fastest that serves the circuit, "reference" is plain torch. memory_budget: bytes for
    buffers. callbacks: functions that are given each epoch's event and stop the training by returning true. progress:
    show a bar; None does on a terminal.
    Ctrl-C ends the training and returns what was learned so far (`result.stopped == "interrupted"`).
    """
    run = Run(method=method if method is not None else Vanilla(), seed=seed, init=init)
    fleet = fit_fleet(
        circuit,
        train,
        [run],
        valid=valid,
        test=test,
        weights=weights,
        labels=labels,
        missing=missing,
        epochs=epochs,
        batch_size=batch_size,
        step_size=step_size,
        tolerance=tolerance,
        patience=patience,
        select=select,
        device=device,
        precision=precision,
        backend=backend,
        memory_budget=memory_budget,
        track=track,
        refit=refit,
        start=start,
        callbacks=callbacks,
        progress=progress,
    )
    return fleet[0]


def fit_fleet(  # noqa: PLR0913 - the same arguments as `fit`
    circuit: Circuit,
    train: Any,
    runs: Sequence[Run],
    *,
    valid: Any = None,
    test: Any = None,
    weights: Any = None,
    labels: Any = None,
    missing: int | None = None,
    epochs: int = 100,
    batch_size: int | None = 200,
    step_size: float | Schedule | None = None,
    tolerance: float | None = None,
    patience: int | None = None,
    select: Literal["best", "last"] | None = None,
    device: str | torch.device = "auto",
    precision: Literal["float32", "float64", "tf32"] = "float32",
    backend: Backend = "auto",
    memory_budget: int | None = None,
    track: bool = False,
    refit: bool = False,
    start: Model | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> FleetResult:
    """Train many runs of one circuit side by side; each equals the same run trained alone by `fit`.

    All runs share the data and the options of `fit`; seed, method, step size and init are each run's own. A run with
    mu="auto" or gate="auto" is trained once for each candidate, in the same pass; its result is the best of them by
    validation likelihood.
    """
    settings = Settings(
        epochs=epochs,
        batch_size=batch_size,
        step_size=step_size,
        tolerance=tolerance,
        patience=patience,
        select=select,
        device=device,
        precision=precision,
        backend=backend,
        memory_budget=memory_budget,
        track=track,
    )
    _check(circuit, runs, callbacks)
    choosing = any(needs_choice(run) for run in runs)
    if refit and any(_follows_validation(run) for run in runs):
        raise OptionError("refit trains on the validation data too, but mu=by_overfitting(...) is driven by them")
    if valid is None:
        _check_does_without_validation(runs, settings)
    held = {name: part for name, part in (("valid", valid), ("test", test)) if part is not None}
    prepared = {"train": prepare(train, circuit, "train", weights=weights, labels=labels, missing=missing)}
    prepared |= {name: prepare(part, circuit, name, missing=missing) for name, part in held.items()}
    check_alike(prepared)
    warn_of_lost_digits(prepared["train"], circuit.families, PRECISIONS[precision])
    program = compile(circuit) if start is None else _same_structure(start, circuit)
    place, dtype = as_device(device), PRECISIONS[precision]
    groups = [candidates(run) for run in runs]
    fleet = [run for group in groups for run in group]
    starts, of_run = _starts(program, fleet, prepared["train"], start)
    params = starts.to(place, dtype).select(of_run)
    samples = {name: table.to(place) for name, table in prepared.items()}
    with progress_bar(settings.epochs, progress) as bar:
        results = Trainer(program, fleet, settings, samples).train(params, [*callbacks, *bar])
    if not choosing:
        return results
    chosen = choose(runs, groups, results)
    if not refit or any(result.stopped == "interrupted" for result in results):
        return chosen
    first = [params.select([fleet.index(result.run)]) for result in chosen]
    return FleetResult(
        tuple(_refit(r, p, settings, samples) if r.path else r for r, p in zip(chosen, first, strict=True))
    )


def _refit(winner: FitResult, params: Params, settings: Settings, samples: Mapping[str, Table]) -> FitResult:
    """Train the winner once more, on training and validation data together, up to the epoch that was chosen."""
    data = {"train": samples["train"] + samples["valid"], **{n: s for n, s in samples.items() if n == "test"}}
    trainer = Trainer(
        winner.model.program, [winner.run], replace(settings, select="last", patience=None, tolerance=None), data
    )
    again = trainer.train(params, [lambda event: event.epoch >= winner.epoch])[0]
    stopped = again.stopped if again.stopped == "interrupted" else winner.stopped
    return replace(again, path=winner.path, stopped=stopped)


def _check(circuit: object, runs: object, callbacks: object) -> None:
    """Refuse arguments of the wrong kind: each of these is easily mistaken for another."""
    if not isinstance(circuit, Circuit):
        raise OptionError(f"circuit must be a Circuit, not {type(circuit).__name__}")
    if not isinstance(runs, Sequence) or not runs:
        raise OptionError(f"runs must be a list of at least one Run, not {runs!r}")
    for run in runs:
        if not isinstance(run, Run):
            raise OptionError(f"runs must hold Run(...) only, not {run!r}")
    if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
        raise OptionError(f"callbacks must be a list of functions, not {callbacks!r}")


def _check_does_without_validation(runs: Sequence[Run], settings: Settings) -> None:
    if any(needs_choice(run) for run in runs):
        raise OptionError("mu='auto' and gate='auto' choose by validation likelihood: give valid=")
    if any(_follows_validation(run) for run in runs):
        raise OptionError("mu=by_overfitting(...) needs validation data: give valid=")
    if settings.patience is not None or settings.select == "best":
        raise OptionError("patience and select='best' need validation data: give valid=")


def _follows_validation(run: Run) -> bool:
    return not isinstance(run.method, Vanilla) and isinstance(run.method.mu, by_overfitting)


def _starts(program: Program, runs: Sequence[Run], train: Table, start: Model | None) -> tuple[Params, Sequence[int]]:
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
        raise OptionError("start: the model has another circuit; pass its own, model.circuit")
    return start.program
