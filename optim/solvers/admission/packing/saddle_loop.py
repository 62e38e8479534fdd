"""Primal-dual steps on a packing master, compiled: columns one way, prices the other, no matrix factorised."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.core.by_reference import by_reference
from optim.core.compile_cache import compiled, inner
from optim.models.admission.instance import FloatArray, IntArray


@by_reference
class Columns(NamedTuple):
    """A master's columns: where each job's columns and each column's entries begin, the entries, and what columns are worth."""

    job_start: IntArray
    start: IntArray
    row: NDArray[np.signedinteger[Any]]
    entry: FloatArray
    value: FloatArray


@inner
def _cost(j, columns, price):
    """Return what column j costs at prices."""
    total = 0.0
    for a in range(columns.start[j], columns.start[j + 1]):
        total += columns.entry[a] * price[columns.row[a]]
    return total


@inner
def _within_share(x):
    """Move x to the nearest point with entries of at least 0 and a sum of at most 1 (Michelot's reductions)."""
    total, count, excess = 0.0, 0, 0.0
    for k in range(len(x)):
        if x[k] > 0.0:
            total += x[k]
            count += 1
    is_over = total > 1.0
    while is_over:
        excess = (total - 1.0) / count
        total, above = 0.0, 0
        for k in range(len(x)):
            if x[k] > excess:
                total += x[k]
                above += 1
        is_over = 0 < above < count
        count = above
    for k in range(len(x)):
        x[k] = max(0.0, x[k] - excess)


@inner
def _row_use(columns, x, use):
    """Write what a point uses of each row."""
    use[:] = 0.0
    for j in range(len(x)):
        if x[j] > 0.0:
            for a in range(columns.start[j], columns.start[j + 1]):
                use[columns.row[a]] += columns.entry[a] * x[j]


@compiled
def step_sizes(columns, job_step, row_step):
    """Write the longest steps of jobs and rows: the inverse sums of their columns' and jobs' largest entries.

    Source: Pock, Chambolle, "Diagonal preconditioning for first order primal-dual algorithms in convex optimization", 2011,
    DOI 10.1109/ICCV.2011.6126441. Of a job's columns one counts, as they share one unit of weight.
    """
    largest = np.zeros(len(row_step))
    row_step[:] = 0.0
    for i in range(len(job_step)):
        most = 0.0
        first, last = columns.start[columns.job_start[i]], columns.start[columns.job_start[i + 1]]
        for j in range(columns.job_start[i], columns.job_start[i + 1]):
            most = max(most, np.sum(columns.entry[columns.start[j] : columns.start[j + 1]]))
        job_step[i] = 1.0 / most if most > 0.0 else 1.0
        for a in range(first, last):
            r = columns.row[a]
            if columns.entry[a] > largest[r]:
                row_step[r] += columns.entry[a] - largest[r]
                largest[r] = columns.entry[a]
        for a in range(first, last):
            largest[columns.row[a]] = 0.0
    for r in range(len(row_step)):
        row_step[r] = 1.0 / row_step[r] if row_step[r] > 0.0 else 0.0


@compiled
def saddle_steps(num_steps, columns, job_step, row_step, taken, reach, x, price, x_sum, price_sum):
    """Take primal-dual steps in place, and add the points up.

    Parameters
    ----------
    num_steps
        How many.
    columns
        The master.
    job_step, row_step
        Lengths of the steps, shapes (jobs,) and (rows,); prices of rows whose step is 0 stay.
    taken
        Steps taken before: the more, the less the reach may grow.
    reach
        By what all lengths are multiplied. A step is too long where prices and columns gain more by moving together than
        they move; the next one is then as long as this one should have been.
    x, price
        The point, shapes (columns,) and (rows,).
    x_sum, price_sum
        Added to, times the reach.

    Returns
    -------
    float, float
        The reach in the end, and the sum of all.

    Notes
    -----
    The rule for the reach is PDLP's (Applegate et al. 2021, section 3.1), but that steps are not taken back.
    """
    use, before, previous = np.empty(len(price)), np.empty(len(price)), np.empty(len(x))
    _row_use(columns, x, use)
    total = 0.0
    for step in range(num_steps):
        before[:] = use
        previous[:] = x
        moved = 0.0
        for i in range(len(job_step)):
            first, last = columns.job_start[i], columns.job_start[i + 1]
            own = x[first:last]
            for k in range(len(own)):
                own[k] += reach * job_step[i] * (columns.value[first + k] - _cost(first + k, columns, price))
            _within_share(own)
            for k in range(len(own)):
                moved += (own[k] - previous[first + k]) ** 2 / job_step[i]
        _row_use(columns, x, use)
        for j in range(len(x)):
            x_sum[j] += reach * x[j]
        together = 0.0
        for r in range(len(price)):
            if row_step[r] > 0.0:
                changed = max(0.0, price[r] + reach * row_step[r] * (2.0 * use[r] - before[r] - 1.0)) - price[r]
                price[r] += changed
                moved += changed**2 / row_step[r]
                together += changed * (use[r] - before[r])
                price_sum[r] += reach * price[r]
        total += reach
        count = taken + step + 2.0
        longest = moved / (2.0 * abs(together)) if together != 0.0 else np.inf
        reach = min((1.0 - count**-0.3) * longest, (1.0 + count**-0.6) * reach)
    return reach, total


@compiled
def attained(columns, x, num_rows, fitted):
    """Take a point's columns back where rows overflow, each by its worst row's excess; return what is left of the value."""
    use = np.empty(num_rows)
    _row_use(columns, x, use)
    value = 0.0
    for j in range(len(x)):
        most = 1.0
        if x[j] > 0.0:
            for a in range(columns.start[j], columns.start[j + 1]):
                most = max(most, use[columns.row[a]])
        fitted[j] = x[j] / most
        value += columns.value[j] * fitted[j]
    return value


@compiled
def losses(columns, price, loss, job_price):
    """Write the least prices of jobs at which no column earns, and what each column loses then; return the dual value."""
    bound = np.sum(price)
    for i in range(len(job_price)):
        most = 0.0
        for j in range(columns.job_start[i], columns.job_start[i + 1]):
            loss[j] = _cost(j, columns, price) - columns.value[j]
            most = max(most, -loss[j])
        for j in range(columns.job_start[i], columns.job_start[i + 1]):
            loss[j] += most
        job_price[i] = most
        bound += most
    return bound
