"""Packing programmes in HiGHS that grow by rows and columns: max v'x, A x <= 1, x >= 0; bases stay warm."""

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csc_array, csr_array

from optim.models.admission.instance import FloatArray
from optim.solvers.lp.highs_run import silent_highs

if TYPE_CHECKING:
    import highspy


def empty_programme(num_rows: int) -> "highspy.Highs":
    """Return a programme without columns, solved by the simplex method on one thread."""
    import highspy

    highs = silent_highs(solver="simplex", presolve="off")
    highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
    add_rows(highs, csr_array((num_rows, 0)))
    return highs


def whole_programme(value: FloatArray, upper: FloatArray, matrix: csr_array) -> "highspy.Highs":
    """Return max v'x, A x <= 1 over whole numbers x between 0 and `upper`; what its optimum claims, nobody has proven."""
    import highspy

    highs, count = silent_highs(), len(value)
    highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
    highs.addVars(count, np.zeros(count), upper)
    everyone = np.arange(count, dtype=np.int32)
    highs.changeColsCost(count, everyone, value)
    highs.changeColsIntegrality(count, everyone, np.full(count, highspy.HighsVarType.kInteger))
    add_rows(highs, matrix)
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
