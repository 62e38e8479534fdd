"""Synthetic records of benchmarks: a seed fills every field, so plots, tables and comparisons have data for each."""

from dataclasses import replace
from typing import Any

import numpy as np

from optim.benchmarks.records import Record, summarise_decisions

SOLVERS = ("online", "search", "bound-only", "fifo")


def random_records(seed: int = 0, suite: str = "admission", problem: str = "admission") -> list[Record]:
    """Return records of four solvers on three instances and two seeds; some are rejected, timed out, or ended with an error."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(3):
        for again in range(2):
            for solver in SOLVERS:
                record = _record(rng, suite, problem, solver, f"instance-{number}", again)
                if number == 2 and solver == "search":
                    record = replace(record, verified=bool(again), violations=[] if again else ["(4) capacity: 1 < 2"])
                if number == 1 and solver == "fifo" and again:
                    record = replace(
                        record, error="RuntimeError: x", objective=None, bound=None, gap=None, verified=False
                    )
                found.append(record)
    return found


def _record(rng: np.random.Generator, suite: str, problem: str, solver: str, instance: str, seed: int) -> Record:
    objective = None if solver == "bound-only" else float(rng.integers(20, 60)) / 4
    bound = None if solver == "fifo" else float(rng.integers(61, 90)) / 4
    load: dict[str, Any] = {
        "tight_rows": float(rng.random()), "rejected_jobs": float(rng.random()),
        "worker_utilisation": {"gpu": float(rng.random()), "cpu": float(rng.random())},
        "lateness": {kind: rng.integers(-5, 9, 4).tolist() for kind in ("insensitive", "sensitive", "critical")},
    }  # fmt: skip
    return Record(
        suite=suite, problem=problem, instance=instance, instance_digest=f"d{instance}", solver=solver, seed=seed,
        time_limit_s=None if seed else 5.0, termination="time_limit" if seed and solver == "search" else "completed",
        objective=objective, bound=bound,
        gap=None if objective is None or bound is None else bound / objective - 1,
        ratio=None if objective is None else objective / 15, seconds=dict(zip(("build", "compile", "solve", "verify"), rng.random(4).tolist(), strict=True)),
        wall_s=float(1 + rng.random()), processor_s=float(2 + rng.random()), verified=True, load=None if objective is None else load,
        decision_ms=summarise_decisions(rng.random(6).tolist()) if solver == "online" else None, iterations=int(rng.integers(99)),
        memory_mb=float(rng.integers(50, 99)), counts={"nodes": float(rng.integers(9))}, options={"tol": 0.5}, labels={"case": f"c{seed}"},
        parameters={"jobs": int(rng.integers(9))}, versions={"numpy": "1"}, machine={"cpu": "a processor"}, code="0123", commit="abc",
    )  # fmt: skip
