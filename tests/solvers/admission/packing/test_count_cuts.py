"""Count cuts: valid for all counts that fit in a class, violated by the mixture for which they were made, and effective."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import Monitor
from optim.models.admission.check.cuts import CutCheck
from optim.models.admission.check.exact_instance import read_exact_instance
from optim.models.admission.decision import CountCut, Cut, Side
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.cuts.cut_table import CutTable
from optim.solvers.admission.cuts.separation import CountSeparator
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.packing_lp import solve_with_cuts
from optim.solvers.admission.pricing.classes import JobTables, PricedSchedules, Prices
from tests.models.admission.check.test_cuts import random_cut
from tests.support.admission.count_cuts import (
    counts_of_job,
    gain_of,
    gains_of,
    make_count_cut,
    most_left_side,
    random_count_cut,
)
from tests.support.admission.plans import proven_by, solution_of
from tests.support.admission.slot_cuts import random_slot_cut
from tests.support.admission.tiny import job_document, tiny_instance, tiny_instances

SEEDS = st.integers(0, 2**32 - 1)


def random_mixture(instance: AdmissionInstance, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Draw up to three counts of each job in each class and slot, each with a weight, as a fractional point has them."""
    rows, weights = [], []
    for is_ps, servers in enumerate((instance.worker_servers, instance.ps_servers)):
        side = Side.PS if is_ps else Side.WORKER
        for c, t, job in product(range(servers.num_classes), range(instance.horizon), range(instance.num_jobs)):
            most = counts_of_job(instance, make_count_cut(server_class=c, slot=t), job, side)
            if most:
                counts = np.unique(rng.integers(1, most + 1, 3))
                rows += [(is_ps, c, t, job, int(count)) for count in counts]
                weights.append(rng.dirichlet(np.ones(len(counts))) * rng.uniform(0.2, 1.0))
    return np.array(rows, dtype=np.int64).reshape(-1, 5), np.concatenate([np.zeros(0), *weights])


@given(tiny_instances(max_jobs=3), SEEDS)
def test_holds_for_all_counts_and_not_for_the_mixture(instance: AdmissionInstance, seed: int) -> None:
    rows, weight = random_mixture(instance, np.random.default_rng(seed))
    cuts = CountSeparator(instance).separate(rows, weight)
    check = CutCheck(read_exact_instance(instance))
    for number, cut in enumerate(cuts):
        assert most_left_side(instance, cut) <= cut.right_hand_side
        assert check.violations(cut, number, "", CountCut) == []
        total = 0.0
        for (is_ps, c, t, job, count), share in zip(rows.tolist(), weight.tolist(), strict=True):
            for side, gain in gains_of(cut):
                if (is_ps, c, t) == (side is Side.PS, cut.server_class, cut.slot) and job in cut.jobs:
                    total += share * gain_of(gain[cut.jobs.tolist().index(job)], count)
        assert total > cut.right_hand_side


def test_tells_half_of_four_from_two() -> None:
    wide = {"epochs": 1, "chunks": 4}
    instance = tiny_instance(
        job_document("a", **wide),
        job_document("b", **wide),
        job_document("c", **wide),
        worker_servers=[{"type": "gpus", "capacity": [4, 0], "count": 1}],
    )
    half = np.array([(0, 0, 0, 0, 4), (0, 0, 0, 1, 3)])
    assert CountSeparator(instance).separate(half, np.array([0.5, 0.5])) == []
    (cut,) = CountSeparator(instance).separate(half, np.array([0.7, 0.6]))
    # One of them at most; and the third job's gains are lifted as far as that goes: two units of it block both.
    assert cut.right_hand_side == 1
    assert cut.jobs.tolist() == [0, 1, 2]
    assert cut.gain.tolist() == [[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1]]
    assert CountSeparator(instance).separate(np.array([(0, 0, 0, 0, 2), (0, 0, 0, 1, 2)]), np.ones(2)) == []
    assert CountSeparator(instance).separate(np.zeros((0, 5), dtype=np.int64), np.zeros(0)) == []


@given(tiny_instances(max_jobs=3), SEEDS)
def test_charges_schedules_for_what_they_use_of_each_cut(instance: AdmissionInstance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    makers = (random_cut, random_count_cut, random_slot_cut)
    cuts: list[Cut] = [makers[int(rng.integers(3))](instance, rng) for _ in range(4)]
    table = CutTable(instance, cuts[:1])
    table.add(cuts[1:])
    sides = (instance.worker_servers, instance.ps_servers)
    workers, ps = (rng.integers(4, size=(3, side.num_classes, instance.horizon)) for side in sides)
    jobs = rng.integers(instance.num_jobs, size=3)
    schedules = PricedSchedules(
        jobs=jobs, payoff=np.zeros(3), completion=np.zeros(3, dtype=np.int64), workers=workers, ps=ps
    )
    use = table.use(schedules)
    assert np.array_equal(table.use(schedules, 2), use[2:])
    multiplier = rng.random(4) * rng.choice([0, 1], 4)
    free = Prices(worker=np.zeros((0, 0, 0)), ps=np.zeros((0, 0, 0)))
    charged = table.charged(free, multiplier)
    assert charged.worker_extra is not None
    assert charged.ps_extra is not None
    for k, job in enumerate(jobs.tolist()):
        segment = int(instance.jobs.segment_offset[job])
        total = float((charged.worker_extra[segment] * workers[k]).sum() + (charged.ps_extra[segment] * ps[k]).sum())
        for counts, curves in ((workers[k], charged.worker_curves), (ps[k], charged.ps_curves)):
            for (c, t), count in np.ndenumerate(counts):
                if curves is not None:
                    row = curves.extra[curves.place[job, t], c]
                    total += float(row[min(count, len(row) - 1)])
        if charged.slot_charges is not None:
            place, extra = charged.slot_charges
            for t, count in enumerate(workers[k].sum(axis=0).tolist()):
                total += float(extra[place[job, t], 0, min(count, extra.shape[2] - 1)])
        assert total == pytest.approx(multiplier @ use[:, k])
    kept = np.flatnonzero(rng.random(4) < 0.5)
    table.keep(kept)
    assert np.array_equal(table.use(schedules), use[kept])
    assert table.cuts == tuple(cuts[k] for k in kept)


@pytest.mark.prove
def test_count_cuts_close_half_of_what_server_cuts_leave_and_are_proven() -> None:
    # small-2's optimum is 476.928: the LP is at 498.6, server cuts at 496.2, three rounds of count cuts at 486.5.
    instance = optim.reference_instance("small-2")
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    tightened = solve_with_cuts(tables, rows, Monitor(), tol=1e-4, cut_rounds=2, count_rounds=3)
    point = tightened.result.point
    assert 476.928 <= point.bound <= 487.0
    assert point.bound < tightened.guide.bound < tightened.plain.bound
    assert optim.verify(instance, solution_of(instance, None, **proven_by(point.proof(rows), point.bound))).is_ok
