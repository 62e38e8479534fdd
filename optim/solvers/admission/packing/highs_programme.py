"""Packing programmes in HiGHS that grow by rows and columns: max v'x, A x <= 1, x >= 0; bases stay warm."""

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csc_array, csr_array

from optim.models.admission.instance import FloatArray

if TYPE_CHECKING:
    import highspy


def empty_programme(num_rows: int) -> "highspy.Highs":
    """Return a programme without columns, solved by the simplex method on one thread."""
    import highspy

    highs = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("solver", "simplex"), ("presolve", "off")):
        highs.setOptionValue(option, value)
    highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
    add_rows(highs, csr_array((num_rows, 0)))
    return highs


def add_rows(highs: "highspy.Highs", matrix: csr_array) -> None:
    """Append rows with right-hand side 1, shape (rows, columns so far)."""
    number = matrix.shape[0]
    highs.addRows(
        number, np.full(number, -np.inf), np.ones(number), matrix.nnz, matrix.indptr[:-1].astype(np.int32),
        matrix.indices.astype(np.int32), matrix.data,
    )  # fmt: skip


def add_columns(highs: "highspy.Highs", value: FloatArray, matrix: csc_array, upper: FloatArray) -> None:
    """Append columns between 0 and `upper`, shape (rows so far, columns)."""
    number = matrix.shape[1]
    highs.addCols(
        number, value, np.zeros(number), upper, matrix.nnz, matrix.indptr[:-1].astype(np.int32),
        matrix.indices.astype(np.int32), matrix.data,
    )  # fmt: skip
