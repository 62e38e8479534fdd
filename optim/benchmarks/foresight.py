"""Which records are of rules that were told something of the future."""

from optim.benchmarks.record import Record
from optim.core.errors import InvalidOptionError
from optim.core.options import build_options
from optim.models.catalogue import problem_names


def foresight_of(record: Record) -> str:
    """Return what of the future a record's rule was told beforehand; nothing of a solver that isn't known here."""
    from optim.solvers.solve import solver_named

    if record.problem not in problem_names():
        return ""
    try:
        solver = solver_named(record.problem, record.solver)
        options = build_options(solver.options_type, dict(record.options))
    except InvalidOptionError:
        return ""
    said: str = getattr(solver, "foresight", lambda _: "")(options)
    return said
