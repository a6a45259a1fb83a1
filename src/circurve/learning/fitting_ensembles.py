"""`fit_ensemble`: members trained as fleets, mixed by held-out rows, and trained further together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from typing import Any, Unpack

import numpy as np

from circurve.data import align, as_table, infer_schema
from circurve.data.need import check_data
from circurve.errors import OptionError, TrainingError
from circurve.learning.boost import grow
from circurve.learning.checkpoints import claim
from circurve.learning.ensemble import (
    Candidate,
    Ensemble,
    ensemble_of,
    held_out_scores,
    refuse_training_rows,
    unscored,
    weigh,
)
from circurve.learning.ensemble_options import EnsembleKeywords, EnsembleOptions, split_options
from circurve.learning.fingerprint import option_facts
from circurve.learning.fitting import fit
from circurve.learning.history import Callback, EpochEnd
from circurve.learning.members import Rows, Trained, best_settings, held_out, plan_members, train_members
from circurve.learning.methods import Vanilla
from circurve.learning.mixing import components
from circurve.learning.mixture_weights import Scores
from circurve.learning.option_texts import refuse_unknown, show_records
from circurve.learning.options import Settings
from circurve.learning.progress import note
from circurve.learning.recipe import BEST_STEP, JOINT, JointRecipe
from circurve.learning.validation import say
from circurve.model import Model
from circurve.schema import Schema
from circurve.words import counted

__all__ = ["fit_ensemble", "train_ensemble", "train_jointly"]


def fit_ensemble(  # noqa: PLR0913 - the data and what belongs to them; all other options go into records at once
    train: Any,
    *,
    valid: Any = None,
    weights: Any = None,
    missing: int | None = None,
    schema: Schema | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    **options: Unpack[EnsembleKeywords],
) -> Ensemble:
    """Train several hidden Chow-Liu trees and mix them into one model (`.model`), with a report of each member.

    By default, eight circuits on two trees: the tree of all rows and one of rows drawn with replacement, each with 32
    and 100 units and two pseudocounts. All are trained on all training rows.
    Members of one tree and number of units are trained side by side as a fleet. Each keeps its epoch of the best
    validation likelihood, and the weights of the mixture are found on the validation rows too, never on training rows.
    Joint training continues with EM on the whole mixture, stops when the validation likelihood falls, and is dropped
    if it does not help. It and boosted members need validation rows. Ctrl-C ends the training and mixes the members
    that exist (`ensemble.stopped == "interrupted"`).

    The defaults of the options of `fit` are those of protocol `best`: batches of 200, a step that falls from 0.2 to
    0.005 in a cosine, 150 epochs (100 on fewer than 5,000 rows; on more than 20,000 fewer epochs in proportion,
    at least 20).

    Parameters
    ----------
    train : array, tensor, list, data frame or Table
        As `fit` takes it.
    valid : array, data frame, float or False, optional
        Held-out rows, or the share of the training rows to hold out; None is 10 %. False holds each of `folds` parts
        of the training rows out in turn, weights the members by the rows that were held out, and trains them again on
        all rows for the median of their epochs: `folds` + 1 times the work.
    weights : array, optional
        (N,): how much each training row counts, for the trees and the starts of the members too.
    missing : int, optional
        A number that marks missing values, in addition to NaN.
    schema : Schema, optional
        What the columns mean; None infers it.
    callbacks : sequence of functions, default ()
        As in `fit`.
    progress : bool, optional
        Show a bar; None does so on a terminal.
    {ensemble}
    {settings}

    Returns
    -------
    Ensemble
        With `.model`, `.members` and `.to_frame()`.

    Raises
    ------
    OptionError
        If options do not fit together.
    TrainingError
        If no member is left.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> ensemble = cc.fit_ensemble(data.train, valid=data.valid, members=3, units=4, epochs=3)
    >>> len(ensemble.members), round(ensemble.valid_ll, 1)
    (3, -21.6)
    """
    refuse_unknown(options, signature(fit_ensemble).parameters, "fit_ensemble")
    chosen, training = split_options(options)
    check_data("fit_ensemble", options.get("memory_budget"), train)
    table = as_table(train, weights=weights, missing=missing)
    schema = schema or infer_schema(table, memory_budget=options.get("memory_budget"))
    table = align(table, schema, unseen="error")
    if valid is False:
        if chosen.boosted or chosen.joint_epochs:
            raise OptionError("boosted and joint_epochs need validation rows: leave valid=False out")
        rows = Rows(table, None, schema, best_settings(training, table), callbacks, progress)
        claim(rows.settings.checkpoint, "fit_ensemble", lambda: {**rows.facts(), **option_facts(chosen)})
        return _cross_validated(rows, chosen)
    held = held_out(table, valid, schema, missing)
    if "valid" in held.rows and progress is not False:
        say(held, table)
    kept = held.parts["train"]
    rows = Rows(kept, held.parts["valid"], schema, best_settings(training, kept), callbacks, progress)
    claim(rows.settings.checkpoint, "fit_ensemble", lambda: {**rows.facts(), **option_facts(chosen)})
    made = train_ensemble(rows, chosen)
    if chosen.joint_epochs and made.stopped != "interrupted":
        try:
            made = _best_of_both(made, train_jointly(made, rows, _joint_recipe(rows, chosen), chosen))
        except KeyboardInterrupt:  # before or after the training itself
            made = replace(made, stopped="interrupted")
    return replace(made, rows=held.rows)


def train_ensemble(rows: Rows, options: EnsembleOptions, pool: Sequence[Candidate] = ()) -> Ensemble:
    """Fleets, then members grown one by one, all of them weighted by the validation rows.

    pool: Models that are trained already, as further candidates, with numbers from `options.members` on.
    """
    plans = plan_members(options)
    at_once = options.members - options.boosted
    trained = train_members(plans[:at_once], rows, options)
    candidates = [*_any(trained), *pool]
    try:
        scores = held_out_scores([candidate.model for candidate in candidates], rows.valid)
        refuse_training_rows(scores, candidates)
        interrupted = trained.interrupted
        for plan in plans[at_once:]:
            if interrupted:
                break
            mixture = weigh(candidates, scores, options.weighting)
            result = grow(plan, mixture.model, len(candidates), rows, options)
            interrupted = result.stopped == "interrupted"
            if not result.failed and result.history:
                candidates = [*candidates, *Trained({plan.number: result}).candidates()]
                new = held_out_scores([result.model], rows.valid)
                scores = Scores(np.concatenate([scores.log_prob, new.log_prob]), scores.row_weights)
        made = weigh(candidates, scores, options.weighting, options.size)
    except KeyboardInterrupt:
        return _without_weights(candidates, options)
    return replace(made, stopped="interrupted") if interrupted else made


def _without_weights(candidates: Sequence[Candidate], options: EnsembleOptions) -> Ensemble:
    """The mixture of members whose weights an interrupt prevented: all have the same."""
    return replace(unscored(candidates[: options.size]), stopped="interrupted")


def _any(trained: Trained) -> list[Candidate]:
    candidates = trained.candidates()
    if not candidates:
        raise TrainingError("all runs of the ensemble failed")
    return candidates


def _joint_recipe(rows: Rows, options: EnsembleOptions) -> JointRecipe:
    """Joint training with the user's options; what was not given is that of `JOINT`."""
    given, usual = rows.settings, Settings()
    return JointRecipe(
        options.joint_epochs,
        JOINT.step if given.step_size == BEST_STEP else given.step_size,
        given.patience or JOINT.patience,
        JOINT.batch_size if given.batch_size == usual.batch_size else given.batch_size,
        min(JOINT.pseudocount, *options.all_pseudocounts),
    )


def _best_of_both(made: Ensemble, joint: Ensemble) -> Ensemble:
    """The mixture after joint training if that raised its validation likelihood, else the one before."""
    assert joint.valid_ll is not None
    assert made.valid_ll is not None
    best = joint if joint.valid_ll > made.valid_ll else made
    return replace(best, stopped=joint.stopped if joint.stopped == "interrupted" else best.stopped)


def train_jointly(made: Ensemble, rows: Rows, recipe: JointRecipe, options: EnsembleOptions) -> Ensemble:
    """EM on the whole mixture from where its members are, and the best mixture of its members before and after that.

    What a member learned alone and what it learned in the mixture differ, so that both together are better than either.
    Weights are found on the validation rows; uniform ones would give members before and after the same share, so there
    only those after joint training are mixed.
    """
    note(f"joint training of {len(made.members)} members", rows.progress)
    settings = replace(
        rows.settings,
        epochs=recipe.epochs,
        step_size=recipe.step,
        patience=recipe.patience,
        batch_size=recipe.batch_size,
    ).part("joint")
    result = fit(
        made.model.circuit,
        rows.train,
        method=Vanilla(recipe.pseudocount),
        seed=options.seed,
        valid=rows.valid,
        start=made.model,
        callbacks=rows.callbacks,
        progress=rows.progress,
        **settings.options(),
    )
    candidates = _parts(made, result.model, ", jointly trained")
    if options.weighting != "uniform":
        candidates = [*_parts(made, made.model), *candidates]
    joint = ensemble_of(candidates, rows.valid, options.weighting)
    stopped = result.stopped if result.stopped == "interrupted" else made.stopped
    return replace(joint, left_out=(*made.left_out, *joint.left_out), stopped=stopped)


def _parts(made: Ensemble, model: Model, remark: str = "") -> list[Candidate]:
    """The members of a mixture with the parameters that they have in this model."""
    parts = components(model)[0] if len(made.members) > 1 else (model,)
    return [
        Candidate(part, f"{member.name}{remark}", member.run, epoch=member.epoch, epochs=member.epochs)
        for member, part in zip(made.members, parts, strict=True)
    ]


def _cross_validated(rows: Rows, options: EnsembleOptions) -> Ensemble:
    """Weights from rows that were held out in turn; then all members are trained again on all rows."""
    known: list[Candidate] = []
    try:
        return _weighted_in_turns(rows, options, known)
    except KeyboardInterrupt:
        if not known:
            raise
        return _without_weights(known, options)


def _weighted_in_turns(rows: Rows, options: EnsembleOptions, known: list[Candidate]) -> Ensemble:
    """The ensemble of `_cross_validated`. known: is filled with the members that are trained last."""
    plans, count = plan_members(options), len(rows.train)
    if count < 2 * options.folds:
        rows_there = counted(count, "training row is", "training rows are")
        raise OptionError(f"{rows_there} too few for folds={options.folds}: pass valid=, or fewer folds")
    parts = np.array_split(np.random.default_rng(options.seed).permutation(count), options.folds)
    log_prob = np.full((len(plans), count), -np.inf)
    epochs: dict[tuple[int, int], list[int]] = {}
    for number, part in enumerate(parts):
        note(f"fold {number + 1} of {options.folds}", rows.progress)
        rest = np.sort(np.concatenate([other for other in parts if other is not part]))
        inside = replace(rows, train=rows.train.rows(rest), valid=rows.train.rows(part)).part(f"fold-{number + 1}")
        trained = train_members(plans, inside, options)
        known[:] = candidates = _any(trained)
        scores = held_out_scores([candidate.model for candidate in candidates], inside.valid)
        if trained.interrupted:
            return replace(weigh(candidates, scores, options.weighting, options.size), stopped="interrupted")
        for candidate, row in zip(candidates, scores.log_prob, strict=True):
            log_prob[candidate.number, part] = row
            plan = plans[candidate.number]
            epochs.setdefault((plan.tree, plan.units), []).append(trained.results[candidate.number].epoch)
    note("all rows", rows.progress)
    trained, settings = Trained(), replace(rows.settings, patience=None, select="last")
    for key, found in epochs.items():
        group = [plan for plan in plans if (plan.tree, plan.units) == key]
        callbacks = (*rows.callbacks, _until(max(1, int(np.median(found)))))
        more = train_members(group, replace(rows, settings=settings, callbacks=callbacks).part("all-rows"), options)
        trained = Trained({**trained.results, **more.results}, more.interrupted)
        known[:] = trained.candidates() or known
        if more.interrupted:
            break
    final = _any(trained)
    row_weights = np.ones(count) if rows.train.weights is None else rows.train.weights.cpu().numpy().astype(np.float64)
    held = Scores(log_prob[[candidate.number for candidate in final]], row_weights)
    made = weigh(final, held, options.weighting, options.size)
    return replace(made, stopped="interrupted") if trained.interrupted else made


def _until(epoch: int) -> Callback:
    """A callback that ends the training after this many epochs."""

    def stop(event: EpochEnd) -> bool:
        return event.epoch >= epoch

    return stop


show_records(fit_ensemble, ensemble=EnsembleOptions, settings=Settings)
