"""Steps on a packing master by hand; what they lead to is tested with `saddle_point`."""

import numpy as np
import pytest

from optim.solvers.lp.pdhg import Columns, step_sizes

MASTER = Columns(
    job_start=np.array([0, 2, 3, 4, 4]),
    start=np.array([0, 1, 3, 4, 4]),
    row=np.array([0, 0, 1, 0], dtype=np.int32),
    entry=np.array([0.5, 0.25, 0.5, 0.5]),
    value=np.ones(4),
)
"""Four jobs on three rows: two columns, 0.5 of row 0 or 0.25 of it and 0.5 of row 1; one, 0.5 of row 0; an empty one; none."""


def test_a_step_is_the_inverse_sum_of_the_largest_entries():
    """Of a job: of its fullest column, 0.75 and 0.5. Of a row: over jobs, 0.5 + 0.5 and 0.5; row 2 has none."""
    job_step, row_step = np.full(4, np.nan), np.full(3, np.nan)
    step_sizes(MASTER, job_step, row_step)
    assert job_step == pytest.approx([1 / 0.75, 1 / 0.5, 1.0, 1.0])
    assert row_step == pytest.approx([1 / (0.5 + 0.5), 1 / 0.5, 0.0])
