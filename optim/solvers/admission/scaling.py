"""Scale small job values to 1 before solving: tolerances of linear programmes, Newton steps and trees are absolute.

The scale is a power of two, so unscaling is exact for every number of the outcome. A proof's prices, payoffs and
multipliers are proportional to the values, and decisions don't depend on the scale.
"""

from dataclasses import replace
from typing import TypeVar

import numpy as np

from optim.core.arrays import power_of_two_scale
from optim.core.driver import AbstractSolver, Monitor, Outcome
from optim.core.solution import Relaxation
from optim.models.admission.data import TableUtility
from optim.models.admission.decision import PriceProof, TreeNode, TreeProof
from optim.models.admission.instance import AdmissionInstance

OptionsT = TypeVar("OptionsT")

AMOUNTS = ("master",)
"""Counters in utility units."""


class ScaledSolver(AbstractSolver[AdmissionInstance, OptionsT]):
    """A solver whose tolerances need a largest job value of at least 1: smaller values are scaled, and outcomes unscaled."""

    def _run(self, instance: AdmissionInstance, options: OptionsT, monitor: Monitor, seed: int) -> Outcome:
        """Run on the scaled instance."""
        unit = scaling(instance)
        if unit == 1.0:
            return self.run(instance, options, monitor, seed)
        outcome = self.run(in_unit(instance, unit), options, monitor.in_unit(unit), seed)
        return unscale(outcome, unit)


def scaling(instance: AdmissionInstance) -> float:
    """Return a power of two: the largest value divided by it lies in [1, 2). It is 1 if this value is 0 or at least 1."""
    return power_of_two_scale(float(instance.value.max(initial=0.0)))


def in_unit(instance: AdmissionInstance, unit: float) -> AdmissionInstance:
    """Return the same instance with all values divided by `unit`."""
    value = instance.value / unit
    tables = (row[arrival:] for row, arrival in zip(value.tolist(), instance.jobs.arrival.tolist(), strict=True))
    utilities = tuple(TableUtility(table=tuple(table)) for table in tables)
    jobs = replace(instance.jobs, utilities=utilities, min_utility=np.zeros(instance.num_jobs))
    rescaled = replace(instance, jobs=jobs)
    # All factors of a value, such as a weight per job, are already in the tables and must not apply twice.
    assert np.array_equal(rescaled.value, value), "the rescaled values differ from the instance's"
    return rescaled


def unscale(outcome: Outcome, unit: float) -> Outcome:
    """Return an outcome of the scaled instance in the original unit."""
    return replace(
        outcome,
        objective=None if outcome.objective is None else outcome.objective * unit,
        bound=None if outcome.bound is None else outcome.bound * unit,
        proof=_unscaled_proof(outcome.proof, unit),
        counts={name: number * unit if name in AMOUNTS else number for name, number in outcome.counts.items()},
        relaxation=None if outcome.relaxation is None else _unscaled_relaxation(outcome.relaxation, unit),
    )


def _unscaled_relaxation(relaxation: Relaxation, unit: float) -> Relaxation:
    columns, rows = relaxation.columns, relaxation.rows
    return Relaxation(
        objective=relaxation.objective * unit,
        columns={**columns, "value": np.asarray(columns["value"]) * unit},
        rows={**rows, "price": np.asarray(rows["price"]) * unit},
    )


def _unscaled_proof(proof: PriceProof | TreeProof | None, unit: float) -> PriceProof | TreeProof | None:
    if isinstance(proof, TreeProof):
        return TreeProof(nodes=tuple(_unscaled_node(node, unit) for node in proof.nodes))
    return None if proof is None else _unscaled_prices(proof, unit)


def _unscaled_node(node: TreeNode, unit: float) -> TreeNode:
    return node if node.proof is None else replace(node, proof=_unscaled_prices(node.proof, unit))


def _unscaled_prices(proof: PriceProof, unit: float) -> PriceProof:
    return PriceProof(
        worker_price=proof.worker_price * unit,
        ps_price=proof.ps_price * unit,
        payoff=proof.payoff * unit,
        cuts=tuple(replace(cut, multiplier=cut.multiplier * unit) for cut in proof.cuts),
        count_cuts=tuple(replace(cut, multiplier=cut.multiplier * unit) for cut in proof.count_cuts),
        slot_cuts=tuple(replace(cut, multiplier=cut.multiplier * unit) for cut in proof.slot_cuts),
    )
