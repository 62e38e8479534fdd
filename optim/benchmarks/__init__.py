"""Suites, runner, records, comparison and report of the solver benchmark.

Protocol
--------
*Work.* A suite turns a request (size, instances, solvers, seeds, time limit, options) into pieces of
work: one solver on one instance with one seed. A solver that can't treat an instance is left out with the
reason.

*Time and memory.* Both are measured around the whole solve, from outside, so that no solver can leave work
out: ``wall_s``, ``processor_s`` (all threads), and ``memory_mb``, by which the solve raised the process'
resident memory at most, free memory given back first. The seconds of a table are those of the wall clock
less compiling. As detail a solver counts its own phases: ``build`` (from instance to model), ``compile``
(code generation; never mixed into another phase), ``solve``, and finer ones; ``verify`` is the
independent checker's. Time limits bound the solve and leave compiling out. One process works at a time
unless ``--processes`` says otherwise: seconds of records made side by side share caches and memory
bandwidth, so compare seconds of one process only.

*Verification.* Every answer is checked by `optim.verify`, which shares no code with any solver. A record
says whether every claim held; a refused record is an error of the solver whatever its value.

*Gap.* ``(bound - objective) / max(|objective|, 1e-9)``, mirrored when minimising; null without either. A
relaxation has a bound and no objective: a fractional value is never an objective. ``ratio`` is bound over
objective.

*Studies.* A study measures something and solves no instance. Its record has no objective, bound or gap;
``findings`` must come out again wherever it is run, ``measures`` depend on the machine and its clock. It is
verified if the study's own checks hold.

*Seeds.* ``--seed`` seeds the generator of instances, the sample of a trace, and the solver. Statements
about randomised solvers need several seeds (``--seed 0,1,2,3,4``); the report then gives shifted
geometric means (gap: shift 1 %, seconds: shift 1 s) and performance profiles over instances and seeds.

*Failures.* A solver that raises or dies has a record with ``error``; it is kept, counted in profiles, and
run again next time.

*Resuming.* A record's ``key`` is a digest of what was asked for: suite, instance, solver, complete
options, seed, time limit, labels. A record of the results file stands for work of the same key if the
same code made it (``code`` is a digest of this package's sources) and it didn't end in an error; what is
stale is removed and run again.

*Golden results.* `optim.benchmarks.compare` says how rows are compared. ``optim bench --write-golden
FILE`` stores them, ``optim bench --compare FILE`` compares: values and gaps, never seconds.

Adding a suite: one file in `optim.benchmarks.suites` that ends with ``register_suite(BenchSpec(...))``, or with
``register_solver_suite`` or ``register_study``, which do so for suites of cases and for studies; other
packages use the entry-point group ``optim.suites``.

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
