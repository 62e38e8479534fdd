"""What the packing LP's parts return on the way, against a record: see `tests.support.golden`."""

import numpy as np
import pytest

import optim
from optim.core.driver import Monitor
from optim.core.stopping import IterationLimit
from optim.solvers.admission.cuts.count_cuts import CountSpace, best_counts, lift_counts, mixture_gains
from optim.solvers.admission.cuts.server_cuts import (
    PackingSpace,
    best_packing,
    lifted_gain,
    separate_fenchel,
    to_integers,
)
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.packing_lp import PackingLP
from optim.solvers.admission.packing.subgradient import SubgradientOptions
from optim.solvers.admission.pricing.classes import JobTables
from optim.solvers.lp.pdhg import solve_pdhg
from tests.support.admission.seeded import seeded_instance as of_all_traits
from tests.support.admission.slot_runs import seeded_instance
from tests.support.admission.tiny import BY_HAND
from tests.support.golden import check

NODE_LIMITS = (1, 2, 3, 5, 8, 13, 20, 30, 50, 1000)
"""With these it is known how many nodes a search takes."""


def bounded(name, **options):
    """Solve the LP."""
    return optim.solve(optim.reference_instance(name), "column-generation", options=options)


def tightened(instance, **options):
    """Solve the LP with cuts."""
    return optim.solve(instance, "search", options={"num_moves": 0, "dives": False, "chains": 1, **options})


def packings():
    """Pack servers of one to three resources, cover loads outside of them, and lift cuts."""
    found = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        kinds, resources = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        unit, room = rng.integers(0, 6, (kinds, resources)), rng.integers(2, 14, resources)
        most, gain = rng.integers(1, 5, kinds), rng.integers(0, 12, kinds)
        packing, rest = np.empty(kinds, dtype=np.int64), np.empty_like(room)
        for limit in NODE_LIMITS:
            found += [best_packing(gain, unit, room, most, limit, packing), packing.copy()]
        right = found[-2]
        new = rng.integers(1, 4, resources)
        found += [lifted_gain(gain, unit, room, most, right, new, 2, limit, packing, rest) for limit in (3, 1000)]
        fits = np.min(np.where(unit > 0, room // np.maximum(unit, 1), 9), axis=1) > 0
        load = rng.uniform(0.1, 1.0, fits.sum()) * np.minimum(most[fits], 2)
        fractional, whole = np.empty(len(load)), np.empty(len(load), dtype=np.int64)
        alone = np.min(np.where(unit[fits] > 0, room // np.maximum(unit[fits], 1), 9), axis=1)
        space = PackingSpace(unit[fits], room, np.minimum(most[fits], alone), 1000)
        for pivots in (1, 3, 50):
            found.append(separate_fenchel(np.minimum(load, space.most), space.most, space, pivots, fractional))
        if found[-1]:
            for max_denominator in (2, 200):
                to_integers(fractional, max_denominator, 5000, whole)
                found += [fractional.copy(), whole.copy()]
    return found


def counts():
    """Choose counts that fit together, tell mixtures from their hull, and lift cuts."""
    found = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        jobs, resources = int(rng.integers(1, 5)), int(rng.integers(1, 3))
        unit, room = rng.integers(0, 4, (jobs, resources)), rng.integers(3, 12, resources)
        unit[:, 0] = np.maximum(unit[:, 0], 1)
        units, first = [], [0]
        for j in range(jobs):
            alone = int(min(room[r] // unit[j, r] for r in range(resources) if unit[j, r]))
            units += sorted(rng.choice(np.arange(1, alone + 1), min(alone, 2), replace=False).tolist())
            first.append(len(units))
        units, first = np.array(units, dtype=np.int64), np.array(first)
        if not len(units):
            continue
        gain, packing = rng.integers(0, 12, len(units)), np.empty(len(units), dtype=np.int64)
        for limit in NODE_LIMITS:
            found += [best_counts(gain, CountSpace(first, units, unit, room, limit), packing), packing.copy()]
        space = CountSpace(first, units, unit, room, 1000)
        lifted, most = gain.copy(), np.ones(len(units), dtype=np.int64)
        lift_counts(lifted, space, found[-2])
        fractional = np.empty(len(units))
        found += [lifted, mixture_gains(rng.uniform(0.2, 0.9, len(units)), most, space, 40, fractional)]
        if found[-1]:
            found.append(fractional.copy())
    return found


def first_order():
    """Solve the last master of an LP by first-order steps, from nothing and from where it ended before."""
    tables = JobTables.build(optim.reference_instance("tiny-2"))
    lp = PackingLP(tables, CapacityRows.of(tables))
    pool = lp.run(
        Monitor(),
        tol=1e-4,
        first=SubgradientOptions(num_steps=20, add_every=2),
        between=SubgradientOptions(num_steps=3),
    ).pool
    master = (pool.share, pool.job, pool.value, tables.num_jobs)
    cold = solve_pdhg(*master, tol=1e-3, most_steps=150)
    return cold, solve_pdhg(*master, tol=1e-4, most_steps=90, x=cold.last_x, row_price=cold.last_price)


def stopped():
    """Stop the LP and its cuts after few rounds."""
    instance, found = optim.reference_instance("tiny-2"), []
    for rounds in (0, 1, 3):
        stop = IterationLimit(rounds)
        found.append(optim.solve(instance, "column-generation", stop=stop, options={"first_steps": 2}))
    return found


RUNS = {
    "central": lambda: bounded("tiny-1"),
    "without-start": lambda: bounded("tiny-2", warm_start=False, first_steps=4, steps_between=0),
    "cuts": lambda: tightened(optim.reference_instance("tiny-2"), count_rounds=2),
    "by-hand": lambda: [tightened(one, count_rounds=1) for one in BY_HAND.values()],
    "drawn": lambda: [tightened(seeded_instance(seed)) for seed in range(5)],
    "traits": lambda: [tightened(of_all_traits(seed), count_rounds=1) for seed in range(1, 32, 6)],
    "stopped": stopped,
    "packings": packings,
    "counts": counts,
    "first-order": first_order,
}


@pytest.mark.prove
@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/admission/packing", name, RUNS[name])
