"""From grants to GPUs: exchange of equal machines, and an app's jobs on its GPUs."""

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optim.models.cluster.cluster import Cluster
from optim.simulation.cluster.policies.themis.placing import chosen_gpus, minimise_migrations, split

CLUSTER = Cluster(gpus=np.array([2, 2, 2, 2]), rack=np.array([0, 0, 1, 1]))
MACHINE_OF = np.repeat(np.arange(4), 2).tolist()
RACK_OF = [0, 0, 1, 1]


def kept(grants, before):
    """Return how many GPUs apps keep, at most, by machine."""
    total = 0
    for app, entries in grants.items():
        had = [MACHINE_OF[gpu] for gpu in before.get(app, ())]
        total += sum(min(count, had.count(machine)) for machine, count in entries)
    return total


@st.composite
def rounds(draw):
    """Two divisions of eight GPUs among three apps, by machine."""
    owners = draw(st.lists(st.lists(st.integers(0, 3), min_size=8, max_size=8), min_size=2, max_size=2))
    before = {app: [g for g in range(8) if owners[0][g] == app] for app in range(3)}
    grants = {}
    for app in range(3):
        counts = np.bincount([MACHINE_OF[g] for g in range(8) if owners[1][g] == app], minlength=4)
        grants[app] = tuple((m, int(c)) for m, c in enumerate(counts) if c)
    return {a: e for a, e in grants.items() if e}, {a: g for a, g in before.items() if g}


@given(rounds())
def test_equal_machines_are_exchanged_for_the_most_gpus_kept(drawn):
    """Against all exchanges of machines within racks, and of the racks."""
    grants, before = drawn
    found = minimise_migrations(CLUSTER.rack, CLUSTER.gpus, grants, before, MACHINE_OF)
    best = 0
    for order in permutations(range(4)):
        if {order[0] // 2, order[1] // 2} in ({0}, {1}):
            moved = {app: tuple((order[m], count) for m, count in entries) for app, entries in grants.items()}
            best = max(best, kept(moved, before))
    assert kept(found, before) == best
    loads = [sorted(count for _, count in entries) for entries in grants.values()]
    assert [sorted(count for _, count in found[app]) for app in grants] == loads
    for m in range(4):
        assert sum(count for entries in found.values() for machine, count in entries if machine == m) <= 2


def test_gpus_that_an_app_had_are_chosen_first():
    free = {0: [0, 1], 1: [3], 2: [4, 5], 3: []}
    assert chosen_gpus(((0, 1), (2, 1)), free, [1, 5]) == [1, 5]
    assert chosen_gpus(((0, 1), (2, 1)), free, []) == [0, 4]


def test_jobs_that_can_stay_do_and_others_take_the_fullest_machine_then_one_rack():
    found = split(range(8), {7: (2, 3)}, [(1, 2), (2, 1), (3, 1)], MACHINE_OF, RACK_OF)
    assert found[7] == (2, 3)
    assert found[1] in ((0, 1), (4, 5), (6, 7))
    gone = split([0, 2], {7: (2, 3)}, [(1, 1)], MACHINE_OF, RACK_OF)
    assert gone == {1: (0,)} or gone == {1: (2,)}
    assert split([0, 2, 3], {}, [(1, 3)], MACHINE_OF, RACK_OF) == {1: (0, 2, 3)}
    assert split([0, 4, 6], {}, [(1, 2)], MACHINE_OF, RACK_OF) == {1: (4, 6)}  # one rack
    assert split([0, 4], {}, [(1, 2), (2, 1)], MACHINE_OF, RACK_OF) == {1: (0, 4)}  # any
    assert split([0, 1, 4], {}, [(1, 4), (2, 1)], MACHINE_OF, RACK_OF) == {2: (4,)}  # jobs that don't fit wait


@given(st.sets(st.integers(0, 7)), st.lists(st.integers(1, 4), max_size=5), st.lists(st.integers(0, 7), max_size=3))
def test_no_gpu_is_given_twice_and_none_from_outside(mine, gangs, held):
    running = {100: tuple(sorted(set(held)))} if held else {}
    waiting = list(enumerate(gangs))
    found = split(mine, running, waiting, MACHINE_OF, RACK_OF)
    used = [gpu for gpus in found.values() for gpu in gpus]
    assert len(used) == len(set(used))
    assert set(used) <= mine
    assert all(len(found[job]) == gang for job, gang in waiting if job in found)
    left = len(mine) - len(used)
    assert all(gang > left for job, gang in waiting if job not in found)
