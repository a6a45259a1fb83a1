"""How circuits are trained best: the numbers that protocols `best` and `record` and ensembles share.

Found by fleets on the DEBD sets: a falling step, each unit around a row of the data, a little smoothing, and the epoch
of the best validation likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass

from circurve.learning.schedules import Schedule, cosine

__all__ = [
    "BEST_EPOCHS",
    "BEST_STEP",
    "CHOW_LIU_SMOOTHING",
    "JOINT",
    "QUICK_RECORD",
    "RECORD",
    "SMALL_EPOCHS",
    "SMALL_ROWS",
    "SMOOTHING",
    "UNITS_GRID",
    "JointRecipe",
    "RecordRecipe",
    "best_epochs",
]

BEST_STEP = cosine(0.2, 0.005)

SMOOTHING = (0.003, 0.01, 0.03)
"""Pseudocounts for each sum and batch of 200 rows, to choose from or to mix."""

BEST_EPOCHS, SMALL_EPOCHS, SMALL_ROWS = 150, 100, 5000
"""Epochs, and those on fewer than SMALL_ROWS training rows: EM memorises such a table sooner."""


LARGE_ROWS, FEWEST_EPOCHS = 20_000, 20
"""Above LARGE_ROWS training rows, all epochs together have as many steps as on LARGE_ROWS; but not below 20 epochs."""


def best_epochs(rows: int) -> int:
    """How many epochs to train on this many rows."""
    if rows < SMALL_ROWS:
        return SMALL_EPOCHS
    return max(FEWEST_EPOCHS, min(BEST_EPOCHS, BEST_EPOCHS * LARGE_ROWS // rows))


UNITS_GRID = (4, 8, 16, 32, 64, 128, 256)
"""The numbers of units that units="auto" tries, from the smallest on: powers of two."""

CHOW_LIU_SMOOTHING = (0.01, 0.1, 1.0, 10.0)
"""Pseudocounts for each sum of a Chow-Liu tree and all rows at once, to choose from."""


@dataclass(frozen=True)
class JointRecipe:
    """EM on a whole mixture. It starts near a maximum: small steps, and an early stop.

    A member gets a part of each batch only, so that batches are larger and the pseudocount smaller than for one
    circuit. (Chosen by validation likelihood on plants and baudio.)
    """

    epochs: int = 40
    step: float | Schedule | None = cosine(0.05, 0.002)  # noqa: RUF009 - a frozen record
    patience: int = 8
    batch_size: int | None = 1000
    pseudocount: float = 0.001


JOINT = JointRecipe()


@dataclass(frozen=True)
class RecordRecipe:
    """How the leaderboard trains: the best single circuit, the members of the ensemble, and their joint training.

    Members of very different sizes help each other most: small ones describe what all rows have in common; large ones,
    which stop after a few epochs, describe groups of similar rows. (Chosen by validation likelihood on dna and bbc.)

    `epochs` None is `best_epochs`; a run ends earlier after `patience` epochs without a better validation likelihood.
    Members have `member_units`, and `member_multiples` of the units of the best single circuit. They are smoothed less
    than a single circuit: what they overfit differs, and the mixture averages it. (In mixtures of members with larger
    pseudocounts too, those with 0.0003 and 0.003 had 53 to 100 % of the weight, found on validation rows.) With
    `pool_singles`, all single circuits that were tried are candidates too.
    """

    units: tuple[int, ...] = UNITS_GRID
    pseudocounts: tuple[float, ...] = (0.0003, *SMOOTHING)
    epochs: int | None = None
    patience: int | None = 30
    members: int = 48
    member_units: tuple[int, ...] = (8, 32, 100, 256)
    member_multiples: tuple[float, ...] = ()
    member_pseudocounts: tuple[float, ...] = (0.0003, 0.003)
    boosted: int = 0
    pool_singles: bool = True
    joint: JointRecipe = JOINT

    def units_of_members(self, chosen: int) -> tuple[int, ...]:
        """The numbers of units that members use in turn, if the best single circuit has this many."""
        multiples = (max(1, round(factor * chosen)) for factor in self.member_multiples)
        return tuple(sorted({*self.member_units, *multiples}))


RECORD = RecordRecipe()

QUICK_RECORD = RecordRecipe(
    units=(2, 4, 8),
    pseudocounts=SMOOTHING[-1:],
    epochs=6,
    members=4,
    member_units=(4,),
    member_pseudocounts=SMOOTHING[:1],
    joint=JointRecipe(epochs=3),
)
"""A first look, in seconds on small tables."""
