"""Compile the loops before the clock of a solve starts, once per process, since compilation isn't solving."""

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
from scipy.sparse import csc_array

from optim.core.driver import Monitor
from optim.models.admission.data import MICRO, ConstantUtility, Jobs, ServerClasses, as_int_array
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.branching.node import NodeBounder
from optim.solvers.admission.cuts.packings import PackingSpace, best_packing, lift, separate_fenchel, to_integers
from optim.solvers.admission.local_search.plan_moves import Neighbourhood
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.column_pool import ColumnPool
from optim.solvers.admission.packing.dual_points import DualPoint, certified_point
from optim.solvers.admission.packing.packing_lp import PackingLP, is_large
from optim.solvers.admission.packing.subgradient import SubgradientOptions
from optim.solvers.admission.posted_prices.online_run import run_online
from optim.solvers.admission.posted_prices.price_functions import PriceFloorRule, ZeroStartPrice, price_ranges
from optim.solvers.admission.pricing.classes import CountCharges, JobTables, price
from optim.solvers.admission.slot_placement import add_in_turn, keep_units, take_in_turn
from optim.solvers.lp.pdhg import solve_pdhg


def smallest_instance(*, is_shared: bool = False) -> AdmissionInstance:
    """Return an instance with one job, one slot, and one server each for workers and PSs, or one shared server."""
    capacity = 2 * MICRO if is_shared else MICRO
    servers = ServerClasses(
        types=("smallest",), capacity=np.full((1, 1, 1), capacity, dtype=np.int64), count=as_int_array([1])
    )
    hosts = servers if is_shared else replace(servers)
    one, demand = as_int_array([1]), np.full((1, 1), MICRO, dtype=np.int64)
    jobs = Jobs(
        ids=("only",),
        arrival=as_int_array([0]),
        epochs=one,
        chunks=one,
        minibatches=one,
        minibatch_micro_s=as_int_array([MICRO]),
        gradient_micro_mb=as_int_array([0]),
        worker_micro_mbps=as_int_array([MICRO]),
        ps_micro_mbps=as_int_array([MICRO]),
        segment_offset=as_int_array([0, 1]),
        segment_start=as_int_array([0]),
        worker_demand=demand,
        ps_demand=demand,
        utilities=(ConstantUtility(value=1.0),),
        min_utility=np.array([np.nan]),
    )
    return AdmissionInstance(
        name="smallest",
        horizon=1,
        slot_micro_s=MICRO,
        resources=("unit",),
        jobs=jobs,
        worker_servers=servers,
        ps_servers=hosts,
        min_utility_share=Fraction(1, 100),
    )


@cache
def compile_bound(*, is_shared: bool) -> None:
    """Compile the loops of bounds, with the plan that rejects every job."""
    certified_point(JobTables.build(smallest_instance(is_shared=is_shared)), AdmissionPlan.from_rows([], []))


@cache
def compile_online(*, is_shared: bool) -> None:
    """Compile the loops of the online rule and of the bound of its plan."""
    compile_bound(is_shared=is_shared)
    instance = smallest_instance(is_shared=is_shared)
    run_online(instance, bounds=price_ranges(instance, PriceFloorRule.UNIT_FREE_LAMBDA), function=ZeroStartPrice())


@cache
def compile_placement() -> None:
    """Compile the loops of slot-by-slot policies, with empty input."""
    none, table = np.zeros(0, dtype=np.int64), np.zeros((0, 0), dtype=np.int64)
    take_in_turn(0, 0, none, table, none, none, none, none, none, table)
    add_in_turn(0, 0, 0, 0, table, table, none, none, none, none, none, none, table)
    keep_units(0, none, table, none, none, none, none, none, table)


@cache
def compile_columns(*, is_shared: bool) -> None:
    """Compile the loops of pricing and of the master."""
    tables = JobTables.build(smallest_instance(is_shared=is_shared))
    subgradient = SubgradientOptions(num_steps=2)
    PackingLP(tables, CapacityRows.of(tables)).run(Monitor(), tol=1e-6, first=subgradient, between=subgradient)


@cache
def compile_first_order() -> None:
    """Compile first-order steps, which only large masters take; small ones use Newton's method."""
    one = csc_array((np.ones(1), (np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))), shape=(1, 1))
    solve_pdhg(one, np.zeros(1, dtype=np.int64), np.ones(1), 1, tol=1e-3, most_steps=1)


def has_large_master(instance: AdmissionInstance) -> bool:
    """Return whether the packing LP has so many rows that masters take first-order steps."""
    sides = [instance.worker_servers] if instance.has_shared_servers else [instance.worker_servers, instance.ps_servers]
    return is_large(np.concatenate([side.capacity.ravel() for side in sides]))


@cache
def compile_moves(*, is_shared: bool) -> None:
    """Compile the loops of insertions, of the neighbourhood search, and of moves of single units."""
    tables = JobTables.build(smallest_instance(is_shared=is_shared))
    rows = CapacityRows.of(tables)
    point = DualPoint(row_prices=np.zeros(rows.num_rows), payoff=np.zeros(1), bound=1.0)
    search = Neighbourhood(tables, rows, point, 0)
    search.construct(np.zeros(1, dtype=np.int64), 1.0)
    search.run(1, 1.0, 1)
    search.polish()
    search.clear()
    pool = ColumnPool(tables, rows)
    pool.add(price(tables, rows.prices(point.row_prices)))
    search.try_schedule(pool.schedule(0))


@cache
def compile_nodes(*, is_shared: bool) -> None:
    """Compile the loops of restricted pricing in branch and price, and of its cuts."""
    compile_cuts()
    compile_count_cuts(is_shared=is_shared)
    tables = JobTables.build(smallest_instance(is_shared=is_shared))
    NodeBounder(tables, CapacityRows.of(tables)).zero_dual_point()


@cache
def compile_cuts() -> None:
    """Compile the loops that separate and lift cuts, on a server that fits one of two jobs, at a load of 3/4 each."""
    # Writable arrays: read-only ones would be compiled for separately.
    units, gain, packing = np.ones(2, dtype=np.int64), np.ones(2, dtype=np.int64), np.empty(2, dtype=np.int64)
    space, fractional = PackingSpace(np.arange(3), units, np.full((2, 1), 2), np.full(1, 3), 10), np.empty(2)
    separate_fenchel(np.array([0.75, 0.75]), units, np.arange(2), space, 10, fractional)
    to_integers(fractional, 10, 10, gain)
    best_packing(gain, space, packing)
    lift(gain, space, 1, True)


@cache
def compile_count_cuts(*, is_shared: bool) -> None:
    """Compile the loops of cuts on counts, and of pricing with their curves."""
    compile_cuts()
    tables = JobTables.build(smallest_instance(is_shared=is_shared))
    rows = CapacityRows.of(tables)
    curves = CountCharges(np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1, 2)))
    price(tables, replace(rows.prices(np.zeros(rows.num_rows)), worker_curves=curves))
