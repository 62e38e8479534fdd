"""Ejection chains: an ejected job finds capacity or ejects others, and a rejected chain has no effect."""

import numpy as np
import pytest

from optim.solvers.admission.local_search.moves import MIN_SHARE, Chain, _clear, put_back
from optim.solvers.admission.local_search.plan_moves import Neighbourhood
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import DualPoint
from optim.solvers.admission.pricing.classes import JobTables
from tests.support.admission.planted import planted
from tests.support.admission.tiny import job_document, tiny_instance

FEW = 60
COLD = 1e-12
"""A temperature at which no move may lower the plan's value."""


def priced(instance, price, seed=0):
    """A neighbourhood where a worker-slot of the first resource costs `price`."""
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    prices = np.zeros(rows.num_rows)
    prices[: rows.num_worker_rows].reshape(rows.worker_shape)[:, :, 0] = price
    worth = tables.value.max(axis=1)
    return Neighbourhood(tables, rows, DualPoint(row_prices=prices, payoff=worth, bound=float(worth.sum())), seed)


def taken(search):
    """Usage of both sides by the present plan's rows, added up one by one."""
    uses = []
    for side, demand in (
        (search.state.workers, search.instance.jobs.worker_demand),
        (search.state.ps, search.instance.jobs.ps_demand),
    ):
        use = np.zeros_like(side.residual)
        for i in np.flatnonzero(search.state.completion >= 0):
            first = search.data.row_offset[i]
            for slot, server, count, segment in side.rows[first : first + side.used[i]]:
                use[slot, server] += count * demand[segment]
        uses.append(use)
    return uses


def queue(length):
    """Jobs of one slot that can run one slot later for a little less, and one job that can only run in slot 0.

    It is admitted only if all others move by one slot in a single chain of moves.
    """
    kept = [
        job_document(
            f"j{k}",
            arrival=k,
            epochs=1,
            chunks=1,
            utility={"kind": "table", "table": [5, 4.9]},
        )
        for k in range(length)
    ]
    last = job_document("last", epochs=1, chunks=1, utility={"kind": "step", "value": 3, "deadline": 0})
    return tiny_instance(
        *kept, last, horizon=length + 1, worker_servers=[{"type": "w", "capacity": [1, 0], "count": 1}]
    )


def test_a_queue_moves_on_by_a_slot_where_no_move_of_single_jobs_pays():
    instance = queue(4)
    search = priced(instance, 0.1)
    search.construct(np.arange(4), 1.0)
    assert search.value == 20.0
    search.run(400, COLD, 1)
    assert search.incumbent_value == pytest.approx(4 * 4.9 + 3)


def test_who_was_forced_in_is_not_driven_out_by_the_next_link():
    # 20 of 20 seeds; 6 where later links may drive the first job out again.
    moved = 0
    for seed in range(20):
        search = priced(queue(5), 0.1, seed)
        search.construct(np.arange(5), 1.0)
        search.run(FEW, COLD, 1)
        moved += search.incumbent_value > 25.0
    assert moved >= 16


def test_refused_jobs_fill_what_a_chain_leaves():
    # Five jobs of two GPUs fill ten. One of five GPUs drives three out, which pays once the job of one GPU takes the tenth.
    def steady(name, gpus, value):
        utility = {"kind": "constant", "value": value}
        return job_document(name, epochs=1, chunks=1, worker=[gpus, 0], utility=utility)

    jobs = [*(steady(f"j{k}", 2, 2.0) for k in range(5)), steady("wide", 5, 5.5), steady("narrow", 1, 1.0)]
    servers = {"worker_servers": [{"type": "w", "capacity": [10, 0], "count": 1}]}
    servers["ps_servers"] = [{"type": "p", "capacity": [0, 7], "count": 1}]
    search = priced(tiny_instance(*jobs, horizon=1, **servers), 0.1)
    search.construct(np.arange(5), 1.0)
    assert search.value == 10.0
    search.run(400, COLD, 1)
    assert search.incumbent_value == pytest.approx(10.5)


def test_a_link_takes_from_its_least_share_to_all_of_the_jobs_away():
    """Thirty jobs block one: 65 % of them are removed on average, since the share is drawn uniformly."""
    jobs = [job_document(f"j{k}", epochs=1, chunks=1) for k in range(31)]
    servers = {"worker_servers": [{"type": "w", "capacity": [30, 0], "count": 1}]}
    servers["ps_servers"] = [{"type": "p", "capacity": [0, 30], "count": 1}]
    search = priced(tiny_instance(*jobs, horizon=1, **servers), 0.5)
    search.construct(np.arange(30), 0.1)
    size, real = np.zeros(3, dtype=np.int64), np.zeros(31)
    lists = [np.zeros(31, dtype=np.int64) for _ in range(7)]
    chain = Chain(*lists[:3], size, *lists[3:5], real, lists[5], lists[6][:1])
    random = np.array([7], dtype=np.uint64)
    counts = []
    for _ in range(200):
        count = _clear(30, search.data, search.state, chain, random)
        assert (search.state.completion < 0).sum() == count + 1
        counts.append(count)
        for i in chain.cleared[:count]:
            assert put_back(i, 0, search.data, search.state)
    assert np.mean(counts) / 30 == pytest.approx((MIN_SHARE + 1) / 2, abs=0.05)


@pytest.mark.parametrize("heat", [COLD, 0.3])
def test_what_is_left_is_what_the_plan_leaves_after_any_chains(heat):
    instance = planted(3, horizon=10, servers=2, gpus=8, decoys=12).instance
    search = priced(instance, 1.0)
    full = [side.residual.copy() for side in (search.state.workers, search.state.ps)]
    search.construct(np.arange(instance.num_jobs), 0.1)
    for _ in range(30):
        search.run_at(heat, 10, 4)
        for side, whole, use in zip((search.state.workers, search.state.ps), full, taken(search), strict=True):
            np.testing.assert_array_equal(side.residual, whole - use)
            assert (side.residual >= 0).all()
        admitted = np.flatnonzero(search.state.completion >= 0)
        assert search.value == pytest.approx(instance.value[admitted, search.state.completion[admitted]].sum())


def test_who_earns_least_over_its_cost_gives_way():
    # Ten jobs with values 1 to 10 fill a server; one of two units takes the place of two, in whatever order
    # the removed jobs return.
    def steady(name, gpus, value):
        return job_document(name, epochs=1, chunks=1, worker=[gpus, 0], utility={"kind": "constant", "value": value})

    jobs = [*(steady(f"j{k}", 1, 1.0 + k) for k in range(10)), steady("rich", 2, 40.0)]
    servers = {"worker_servers": [{"type": "w", "capacity": [10, 0], "count": 1}]}
    servers["ps_servers"] = [{"type": "p", "capacity": [0, 11], "count": 1}]
    driven_out = []
    for seed in range(20):
        search = priced(tiny_instance(*jobs, horizon=1, **servers), 0.5, seed)
        # An ejected job ejects no other job in turn.
        search.data.payoff[:] = 0.0
        search.construct(np.arange(10), 0.1)
        while search.state.completion[10] < 0:
            search.run(1, COLD, 1)
        driven_out += np.flatnonzero(search.state.completion < 0).tolist()
    # 1.4 on average; 7.5 in the opposite order.
    assert np.mean(driven_out) < 3.0
