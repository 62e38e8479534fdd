"""Cuts without a multiplier are free: no charge, and no curve for pricing."""

import numpy as np

from optim.solvers.admission.cuts.cut_table import CutTable
from optim.solvers.admission.pricing.classes import Prices
from tests.models.admission.check.test_cuts import make_cut
from tests.support.admission.count_cuts import make_count_cut
from tests.support.admission.tiny import job_document, tiny_instance

TWO = tiny_instance(job_document("a", chunks=4), job_document("b", chunks=4))
FREE = Prices(worker=np.zeros((0, 0, 0)), ps=np.zeros((0, 0, 0)))


def test_count_cuts_without_a_multiplier_make_no_curves():
    table = CutTable(TWO, [make_count_cut(), make_count_cut(slot=1)])
    none = table.charged(FREE, np.zeros(2))
    assert (none.worker_curves, none.ps_curves) == (None, None)
    later = table.charged(FREE, np.array([0.0, 2.0])).worker_curves
    assert later is not None
    assert [np.flatnonzero(row).tolist() for row in later.place] == [[1], [1]]
    assert [later.extra[row, 0, :4].tolist() for row in later.place[:, 1]] == [[0.0, 0.0, 0.0, 2.0]] * 2


def test_server_cuts_charge_each_unit_its_coefficient_at_their_multiplier():
    table = CutTable(TWO, [make_cut(worker_coefficient=np.array([1, 3])), make_cut(slot=2)])
    worker, ps = table.extra(np.array([0.5, 0.0]))
    assert (worker[:, 0, 0].tolist(), np.count_nonzero(worker), np.count_nonzero(ps)) == ([0.5, 1.5], 2, 0)
