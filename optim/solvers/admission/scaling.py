"""Worths far below 1 are solved in a unit of their own: tolerances of linear programmes, Newton steps and trees are absolute.

The unit is a power of two, so that every number of the outcome comes back exactly as it was found: prices, payoffs and
multipliers of a proof are proportional to worths, decisions don't change with them.
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
"""Counters in the unit of worths."""


class ScaledSolver(AbstractSolver[AdmissionInstance, OptionsT]):
    """A solver whose tolerances presume that the largest worth is 1 or more; smaller ones are made so, and taken back."""

    def _run(self, instance: AdmissionInstance, options: OptionsT, monitor: Monitor, seed: int) -> Outcome:
        """Run in the instance's own unit."""
        unit = scaling(instance)
        if unit == 1.0:
            return self.run(instance, options, monitor, seed)
        outcome = self.run(in_unit(instance, unit), options, monitor.in_unit(unit), seed)
        return unscale(outcome, unit)


def scaling(instance: AdmissionInstance) -> float:
    """Return the power of two in which the largest worth lies between 1 and 2; 1 where it is larger, or 0."""
    return power_of_two_scale(float(instance.value.max(initial=0.0)))


def in_unit(instance: AdmissionInstance, unit: float) -> AdmissionInstance:
    """Return the same instance with all worths in another unit."""
    value = instance.value / unit
    tables = (row[arrival:] for row, arrival in zip(value.tolist(), instance.jobs.arrival.tolist(), strict=True))
    utilities = tuple(TableUtility(table=tuple(table)) for table in tables)
    jobs = replace(instance.jobs, utilities=utilities, min_utility=np.zeros(instance.num_jobs))
    rescaled = replace(instance, jobs=jobs)
    # Whatever else a worth is made of, a weight per job, say, is in the tables and must not count a second time.
    assert np.array_equal(rescaled.value, value), "worths in another unit are not those of the instance"
    return rescaled


def unscale(outcome: Outcome, unit: float) -> Outcome:
    """Return an outcome in the unit of 1."""
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
    )
