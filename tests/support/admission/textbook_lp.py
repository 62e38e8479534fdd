"""Textbook column generation for the packing LP: simplex master, cold start, one pricing per round at its vertex duals.

Source: Desaulniers, Desrosiers, Solomon (eds.), "Column Generation", 2005, chapter 1, DOI 10.1007/b135457.
"""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, vstack

from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.column_pool import ColumnPool
from optim.solvers.admission.pricing.classes import JobTables, price

TOL = 1e-6


def textbook_optimum(instance: AdmissionInstance) -> tuple[float, float]:
    """Return the master's value and the bound once they agree to a relative 1e-6, or no new schedule is found."""
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    pool, prices, master, bound = ColumnPool(tables, rows), np.zeros(rows.num_rows), 0.0, np.inf
    while True:
        priced = price(tables, rows.prices(prices))
        bound = min(bound, float(priced.payoff.sum() + prices @ rows.capacity))
        if pool.add(priced) == 0 or bound - master <= TOL * master:
            return master, bound
        count = len(pool)
        jobs = csr_array((np.ones(count), (pool.job, np.arange(count))), shape=(tables.num_jobs, count))
        found = linprog(-pool.value, A_ub=vstack([pool.share, jobs]), b_ub=np.ones(rows.num_rows + tables.num_jobs))
        master = -found.fun
        dual = np.maximum(-found.ineqlin.marginals[: rows.num_rows], 0.0)
        prices = np.divide(dual, rows.capacity, out=np.zeros_like(dual), where=rows.capacity > 0)
