"""A mixture of latent trees on a CPU: each member is a latent tree, and the root divides the flow among them.

A chunk goes up all members; the root computes the share of each member in each sample; each member sends its share
down. The messages of all members are kept in between, so a chunk takes the memory of all of them together; for
log-probabilities alone it takes that of the largest member.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import cached_property
from threading import RLock

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.memory import CACHE_BYTES
from circurve.engine.numerics import MESSAGES
from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.engine.reference import Reference
from circurve.engine.reference.downward import RootFlow
from circurve.engine.statistics import CurvatureSums, Request, Statistics
from circurve.engine.tree.backend import LatentTree, collect, parts_for
from circurve.engine.tree.bound import UpwardPass, versions_of
from circurve.engine.tree.estep import TreeSums
from circurve.engine.tree.members import AlikeMembers, MixtureLayout, Place
from circurve.engine.tree.memory import Pool
from circurve.engine.tree.mixture_root import MixtureRoot, mixed_values
from circurve.words import counted

__all__ = ["TreeMixture"]


class TreeMixture:
    """R runs of a mixture of latent trees. Chunks with samples that a member finds impossible go to a reference."""

    name = "mixture of latent trees"

    def __init__(self, program: Program, layout: MixtureLayout, runs: int, dtype: torch.dtype) -> None:
        self.program, self.layout, self.runs, self.dtype = program, layout, runs, dtype
        self.device = torch.device("cpu")
        self.max_samples: int | None = None
        self.lock = RLock()
        self._trees = [LatentTree(group.program, group.layout, runs * group.count, dtype) for group in layout.groups]

        self._scorers = self._make_scorers()
        self._kept: tuple[Params, tuple[int, ...], list[Params]] | None = None
        """The parameters of the last call of `log_prob`, and those of the members: trees keep tables between calls."""

    @cached_property
    def _reference(self) -> Reference:
        return Reference(self.program, self.runs, self.device, self.dtype)

    def describe(self) -> str:
        """A readable description of what computes."""
        name, counts = str(self.dtype).removeprefix("torch."), [group.count for group in self.layout.groups]
        kinds = "the same tree" if len(counts) == 1 else f"{len(counts)} different trees"
        return f"{self.name}: {counted(sum(counts), 'member')} of {kinds} on a CPU, {name}, {counted(self.runs, 'run')}"

    def _make_scorers(self) -> list[LatentTree]:
        """The members again, for log-probabilities alone: they use the same memory, one after the other."""
        pool = Pool()
        return [LatentTree(tree.program, tree.layout, tree.runs, tree.dtype, pool) for tree in self._trees]

    def bytes_per_sample(self, backward: bool) -> int:
        """Memory for one sample of all runs."""
        trees, groups = [tree.bytes_per_sample(backward) for tree in self._trees], self.layout.groups
        members = (each // group.count for each, group in zip(trees, groups, strict=True))
        columns = sum(len(group.columns) for group in groups)
        return (sum(trees) if backward else max(members)) + 3 * columns * self.runs * 8

    def table_bytes(self, curved: bool) -> int:
        """Memory of the joint tables of all members, whatever the samples are."""
        return sum(tree.table_bytes(curved) for tree in self._trees)

    def release(self) -> None:
        """Give all buffers back; the next call makes new ones."""
        self._kept, self._scorers = None, self._make_scorers()
        for tree in self._trees:
            tree.release()
        if "_reference" in self.__dict__:
            self._reference.release()

    @torch.no_grad()
    def log_prob(self, params: Params, batch: Batch) -> Tensor:  # -> (R, outputs, N)
        """Log-probabilities of all outputs; -inf for probability zero."""
        versions = versions_of(params)
        if self._kept is None or self._kept[0] is not params or self._kept[1] != versions:
            self._kept = (params, versions, self._members(params))
        values = [
            self._log_values(tree, group, own, batch)
            for tree, group, own in zip(self._scorers, self.layout.groups, self._kept[2], strict=True)
        ]
        weights = params.weights[self.layout.root][:, 0]
        return mixed_values(weights, by_column(self.layout.groups, values)).to(self.dtype)

    def _log_values(self, tree: LatentTree, group: AlikeMembers, params: Params, batch: Batch) -> Tensor:
        """Values of a group's members (R M, outputs, N), with fewer samples at once, so that they need the memory of
        one member."""
        few = CACHE_BYTES // tree.bytes_per_sample(backward=False)
        parts = batch.parts(max(-(-batch.size // group.count), few, 1))
        return torch.cat([tree.log_values(params, group.batch(part)) for part in parts], dim=-1)

    @torch.no_grad()
    def statistics(self, params: Params, batches: Iterable[Batch], request: Request | None = None) -> Statistics:
        """The sums of an E-step over all batches."""
        asked = request or Request()

        def start(batch: Batch) -> MixtureSums:
            return MixtureSums(self, params, asked, batch.size)

        def otherwise(batch: Batch) -> Statistics:
            parts = parts_for(self._reference, batch, True, self.bytes_per_sample(True))
            return self._reference.statistics(params, parts, asked)

        return collect(start, otherwise, batches, self.program)

    def sums_of_members(self, params: Params, request: Request, samples: int) -> list[TreeSums]:
        """What adds up the E-step of each group of members."""
        pairs = zip(self._trees, self._members(params), strict=True)
        return [TreeSums(tree.bind(samples), own, request, whole=False) for tree, own in pairs]

    def _members(self, params: Params) -> list[Params]:
        """The parameters of each group of members."""
        return [group.params(params) for group in self.layout.groups]


class MixtureSums:
    """Adds up the E-step of a mixture chunk by chunk."""

    def __init__(self, mixture: TreeMixture, params: Params, request: Request, samples: int) -> None:
        self.layout, self.request, self.runs, self.dtype = mixture.layout, request, mixture.runs, mixture.dtype
        self.members = mixture.sums_of_members(params, request, samples)
        self.root = MixtureRoot(mixture.program, self.layout.root, params.weights[self.layout.root], request)

    def add(self, batch: Batch) -> bool:
        """Add a chunk. False: a sample is impossible for some member, or NaN, and nothing was added."""
        passes: list[UpwardPass] = []
        for sums, group in zip(self.members, self.layout.groups, strict=True):
            up = sums.rise(group.batch(batch))
            if up is None:
                return False
            passes.append(up)
        values = by_column(self.layout.groups, [up.outputs for up in passes])
        root, flow = self.root.add(batch, values)
        flow = torch.threshold(flow.to(self.dtype), MESSAGES[self.dtype].flush, 0.0)
        for sums, group, up in zip(self.members, self.layout.groups, passes, strict=True):
            sums.descend(up, self._share(root, flow, group), batch.weights is not None)
        return True

    def _share(self, root: RootFlow, flow: Tensor, group: AlikeMembers) -> RootFlow:
        """The flow that enters the members of a group; flow: of all outputs of members, (R, C, N)."""
        own = flow.index_select(1, group.columns).view(self.runs * group.count, -1, flow.shape[-1])
        weight = root.weight.to(self.dtype).repeat_interleave(group.count, dim=0)
        return replace(root, flow=own, weight=weight)

    def result(self, program: Program) -> Statistics:
        """The sums of all chunks that were added."""
        groups, root = self.layout.groups, self.root.result()
        found = [sums.result(group.program) for sums, group in zip(self.members, groups, strict=True)]
        at_sums, layers = [group.sums for group in groups], len(program.sums)
        curvature = None
        if root.curvature is not None:
            parts = {
                field.name: [getattr(each.curvature, field.name) for each in found] for field in fields(CurvatureSums)
            }
            own = {name: getattr(root.curvature, name) for name in parts}
            asked = (name for name in parts if own[name] is not None)
            curvature = CurvatureSums(**{n: self._joined(parts[n], at_sums, layers, own[n][0]) for n in asked})
        return replace(
            root,
            counts=self._joined([each.counts for each in found], at_sums, layers, root.counts[0]),
            inputs=self._joined([each.inputs for each in found], [g.inputs for g in groups], len(program.inputs)),
            curvature=curvature,
        )

    def _joined(
        self,
        parts: Sequence[tuple[Tensor, ...]],
        at: Sequence[tuple[Place, ...]],
        layers: int,
        root: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Tensors (R M, G, ...) of the layers of each group -> (R, all groups, ...) of the layers of the mixture."""
        by_layer: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(layers)]
        for tensors, places in zip(parts, at, strict=True):
            for tensor, place in zip(tensors, places, strict=True):
                by_run = tensor.reshape(self.runs, -1, *tensor.shape[2:])  # (R, M G, ...)
                by_layer[place.layer].append((place.positions, by_run))
        if root is not None:
            by_layer[self.layout.root].append((torch.zeros(1, dtype=torch.int64), root.to(parts[0][0].dtype)))
        found = []
        for pairs in by_layer:
            order = torch.argsort(torch.cat([positions for positions, _ in pairs]))
            found.append(torch.cat([tensor for _, tensor in pairs], dim=1).index_select(1, order))
        return tuple(found)


def by_column(groups: Sequence[AlikeMembers], values: Sequence[Tensor]) -> Tensor:  # -> (R, C, N)
    """Values (R M, outputs, N) of the members of each group, in the order of the root's child units."""
    runs = len(values[0]) // groups[0].count
    together = torch.cat([each.reshape(runs, -1, each.shape[-1]) for each in values], dim=1)
    return together.index_select(1, torch.argsort(torch.cat([group.columns for group in groups])))
