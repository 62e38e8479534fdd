"""A third party's suite."""

from optim.benchmarks.cases import options_for
from optim.benchmarks.suite import BenchSpec, SolveWork, Subject
from optim.workloads.instances import NamedSource


def build(request):
    """Yield the three tiny instances, with `idle` unless other solvers are requested."""
    solvers = request.solvers or ("idle",)
    options = options_for("admission", solvers, request.options)
    for number in range(3):
        subject = Subject(NamedSource(f"tiny-{number}").load(0))
        for solver in solvers:
            for seed in request.seeds:
                yield SolveWork(
                    suite="dummy",
                    subject=subject,
                    solver=solver,
                    seed=seed,
                    time_limit_s=request.time_limit_s,
                    options=options[solver],
                    labels={"number": number},
                )


SPEC = BenchSpec(name="dummy", problem="admission", summary="of a plug-in", build=build, columns=("number",))
