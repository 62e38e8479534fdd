"""Compile the loops that most tests run once, before several test processes would each compile them.

By hand: `python -m tests.support.warm_up`.
"""

import gc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from optim_studies.stress import STRESS_INSTANCES

from optim.core.errors import UnsupportedProblemError
from optim.core.stopping import IterationLimit
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import Workload
from optim.models.reference import reference_instance
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.index.policy import IndexPolicy, Key
from optim.simulation.cluster.policies.yarn_cs import YarnCs, YarnOptions
from optim.solvers.admission.warm_up import compile_columns, compile_nodes, compile_online
from optim.solvers.solve import solve, solvers_of
from tests.support.auction.builders import auction, linear

ROUNDS = 10
PROCESSES = 2
GC_THRESHOLDS = (100_000, 50, 50)


def by_all_solvers(problem: str, *instances: object) -> None:
    """Solve instances by every solver that supports them."""
    for instance in instances:
        for solver in solvers_of(problem):
            try:
                solve(instance, solver.name, stop=IterationLimit(ROUNDS))
            except UnsupportedProblemError:
                continue


def own_servers() -> None:
    """Compile the loops for clusters with separate servers for workers and PSs."""
    by_all_solvers("admission", reference_instance("tiny-0"))


def shared_columns() -> None:
    """Compile the first loops for workers and PSs on the same servers: pricing, also of branching."""
    compile_columns(is_shared=True)
    compile_nodes(is_shared=True)


def shared_online() -> None:
    """Compile the online algorithm for shared servers."""
    compile_online(is_shared=True)


def shared_servers() -> None:
    """Compile the remaining loops for shared servers."""
    by_all_solvers("admission", STRESS_INSTANCES["shared-pair"]())


def auctions() -> None:
    """Compile packing and payments, also of the counting programme."""
    by_all_solvers("auction", reference_instance("auction-tiny-0"), auction([4, 4], *[linear(4, 8.0, "slot")] * 3))


def job() -> Workload:
    """Return the smallest workload."""
    return Workload(submit_us=np.zeros(1, np.int64), gpus=np.ones(1, np.int64), duration_us=np.ones(1, np.int64))


def clusters() -> None:
    """Compile the simulation's loop."""
    simulate(job(), Cluster.grid("1x1"), IndexPolicy(name="submission", key=Key.SUBMISSION))


def capacity() -> None:
    """Compile the capacity scheduler's loop."""
    simulate(job(), Cluster.grid("1x1"), YarnCs(YarnOptions(), job()))


PARTS = (own_servers, auctions, clusters, capacity, shared_online, shared_columns, shared_servers)
"""Parts in the order in which free processes take them: a loop of two parts is compiled and cached in the earlier one."""


def prepare() -> None:
    """Collect garbage rarely: the objects of a compiler live as long as its process."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def run_part(index: int) -> None:
    """Compile one part."""
    PARTS[index]()


if __name__ == "__main__":
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"), initializer=prepare) as pool:
        list(pool.map(run_part, range(len(PARTS))))
