"""Costs that guide insertions: prices of rows, and charges of cuts."""

import numpy as np

from optim.models.admission.decision import ServerCut, Side
from optim.solvers.admission.local_search.insertion import make_search_data
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import DualPoint
from optim.solvers.admission.pricing.classes import JobTables
from tests.support.admission.tiny import job_document, tiny_instance


def test_a_unit_costs_its_rows_prices_and_what_cuts_charge() -> None:
    # Worker rows are (class, slot, resource) by gpu and cpu; a worker takes two GPUs.
    instance = tiny_instance(*(job_document(f"j{i}", worker=[2, 0]) for i in range(3)))
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    prices = np.zeros(rows.num_rows)
    prices[2] = 0.5
    cut = ServerCut(
        side=Side.WORKER,
        server_class=0,
        slot=1,
        jobs=np.array([0, 2]),
        worker_coefficient=np.array([1, 3]),
        ps_coefficient=np.array([0, 0]),
        right_hand_side=3,
        multiplier=0.0,
    )
    point = DualPoint(row_prices=prices, payoff=np.zeros(3), bound=1.0, cuts=(cut,), multiplier=np.array([0.25]))
    cost = make_search_data(tables, rows, point).workers.cost
    assert cost[:, 0, 1].tolist() == [1.25, 1.0, 1.75]
    assert not cost[:, 0, [0, 2, 3]].any()
