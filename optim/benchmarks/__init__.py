"""Suites, runner, records, comparison and report of the solver benchmark.

Protocol
--------
*Work.* A suite turns a request (size, instances, solvers, seeds, time limit, options) into pieces of
work: one solver on one instance with one seed. A solver that does not support an instance is skipped with
the reason.

*Time and memory.* The runner measures the complete solve from outside: ``wall_s``, ``processor_s`` (all
threads), and ``memory_mb``, the peak increase of resident memory after free memory was returned to the
system. Tables show wall-clock seconds without compilation. In addition, solvers time their phases:
``build`` (from instance to model), ``compile`` (code generation, excluded from other phases), ``solve``,
and finer ones; ``verify`` is the time of the independent checker. Time limits exclude compilation. One
process runs at a time unless ``--processes`` is given. Concurrent processes share caches and memory
bandwidth, so compare only times of runs with one process.

*Verification.* `optim.verify`, which shares no code with any solver, checks every solution. A record
contains the result; a refused record is an error of the solver, regardless of its value.

*Gap.* ``(bound - objective) / max(|objective|, 1e-9)``, mirrored when minimising; null if one is missing. A
relaxation has a bound but no objective, since a fractional value is never an objective. ``ratio`` is the
certified ratio: bound over objective, mirrored when minimising.

*Studies.* A study measures something and solves no instance. The record of a study has no objective, bound or gap.
``findings`` are reproducible on every machine; ``measures`` depend on the machine and its clock. The
record counts as verified if the checks of the study pass.

*Seeds.* ``--seed`` seeds the generator of instances, the sample of a trace, and the solver. Statements
about randomised solvers need several seeds (``--seed 0,1,2,3,4``); the report then gives shifted
geometric means (gap: shift 1 %, seconds: shift 1 s) and performance profiles over instances and seeds.

*Failures.* If a solver raises or its process dies, its record has an ``error``. Performance profiles count
the instance as unsolved, and the next run repeats the solve.

*Resuming.* A record's ``key`` is a digest of the request: suite, instance, solver, complete options, seed,
time limit, labels. A run reuses a record of the same key if it has no error and the same code made it
(``code`` is a digest of this package's sources). Other records of the request are removed and run again.

*Golden results.* ``optim bench --write-golden FILE`` stores results, and ``optim bench --compare FILE``
compares values and gaps with them, not times (rules: `optim.benchmarks.compare`).

To add a suite, write one file in `optim.benchmarks.suites` that ends with ``register_suite(BenchSpec(...))``,
``register_solver_suite`` (for suites of cases) or ``register_study``. Other packages use the entry-point group
``optim.suites``.

References
----------
T. Achterberg, "Constraint Integer Programming", PhD thesis, TU Berlin, 2007 (shifted geometric means).
E. Dolan, J. Moré, "Benchmarking optimization software with performance profiles", Mathematical Programming 91
(2002), DOI 10.1007/s101070100263.
"""

if __name__ != "optim.benchmarks":
    raise ImportError(
        "import this package as optim.benchmarks: the folder benchmarks/ at the top is a link for readers"
    )
