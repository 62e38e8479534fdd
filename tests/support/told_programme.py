"""A programme told by the names of its columns and rows: its text differs from one version of Pyomo to the next."""

from typing import Any

from scipy.sparse import csc_array

from optim.solvers.lp.highs import CompiledModel


def told_programme(model: Any) -> dict[str, list[Any]]:
    """Return a linear model's columns (cost, bounds, whether whole) and rows (bounds, entries), in order of their names."""
    compiled = CompiledModel(model)
    lp = compiled.lp
    matrix = lp.a_matrix_
    entries = csc_array((matrix.value_, matrix.index_, matrix.start_), shape=(lp.num_row_, lp.num_col_)).tocsr()
    names = [column.name for column in compiled.columns]
    columns = {
        name: [float(lp.col_cost_[k]), float(lp.col_lower_[k]), float(lp.col_upper_[k]), not column.is_continuous()]
        for k, (name, column) in enumerate(zip(names, compiled.columns, strict=True))
    }
    rows: dict[str, list[Any]] = {}
    for k, row in enumerate(compiled.rows):
        begin, end = entries.indptr[k : k + 2]
        own = zip((names[c] for c in entries.indices[begin:end]), entries.data[begin:end].tolist(), strict=True)
        bounds = [float(lp.row_lower_[k]), float(lp.row_upper_[k])]
        rows.setdefault(row.name, []).append([bounds, sorted((name, value) for name, value in own if value)])
    sense = [float(lp.sense_.value if hasattr(lp.sense_, "value") else int(lp.sense_)), float(lp.offset_)]
    return {"sense": sense, "columns": sorted(columns.items()), "rows": sorted(rows.items(), key=lambda pair: pair[0])}
