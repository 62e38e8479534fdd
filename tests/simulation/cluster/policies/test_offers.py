"""Mesos' locks by a script of two frameworks, and Omega's conflicts by enumerating commits."""

from itertools import product

import numpy as np
import pytest

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import workload


def _run(rows, group, name, options, gpus="1x4", **engine):
    jobs = workload(rows, group=np.array(group), groups=("a", "b"))
    return simulate(jobs, Cluster.grid(gpus), make_policy(name, jobs, options), EngineOptions(overhead_s=0, **engine))


def test_an_offer_locks_what_it_holds_until_it_is_answered():
    """All four GPUs are offered to a, which takes two after a second; b is offered the rest, and answers a second later."""
    run = _run([(0, 2, 10), (0, 2, 10)], [0, 1], "mesos", {"decide_s": 1})
    assert (run.first_start_us / US).tolist() == [1, 2]
    assert run.figures == {"offers": 2, "declined": 0}


def test_offers_go_to_the_least_share_and_end_what_a_gang_waits_for():
    """b has no GPU when its GPU becomes free at 12: it gets the offer before a, whose job came earlier."""
    rows = [(0, 3, 30), (0, 1, 10), (2, 1, 5), (2, 1, 5)]
    run = _run(rows, [0, 1, 0, 1], "mesos", {"decide_s": 1})
    # 0-1: a takes 3; 1-2: b takes 1 until 12; 12-13: b (share 0) takes it until 18; 18-19: a takes it
    assert (run.first_start_us / US).tolist() == [1, 2, 19, 13]


def test_the_first_job_waits_for_a_better_place_as_long_as_it_may():
    """Two GPUs are free on two machines: the gang of two declines them for ten seconds."""
    rows = [(0, 1, 100), (0, 1, 100), (5, 2, 5)]
    jobs = workload(rows)
    policy = make_policy("mesos", jobs, {"decide_s": 1, "delay_s": 10})
    run = simulate(jobs, Cluster.grid("2x2"), policy, EngineOptions(overhead_s=0, placement="worst-fit", spread=True))
    assert (run.first_start_us / US).tolist()[2] == 5 + 10 + 1


@pytest.mark.parametrize(
    ("widths", "times"), list(product([(1, 1), (2, 1), (1, 2), (2, 2), (3, 2)], [(0, 0), (0, 1), (1, 0)]))
)
def test_two_schedulers_conflict_when_the_same_gpus_are_gone(widths, times):
    """First-fit on one machine of four: both plan on the snapshot of their start, the earlier commit wins, the other tries again.

    A decision takes a second, and half a second per GPU; a scheduler that finds no place tries again when a job ends.
    """
    run = _run(
        [(when, width, 100) for when, width in sorted(zip(times, widths, strict=True))],
        [0, 1],
        "omega",
        {"job_s": 1, "task_s": 0.5},
    )
    begin = dict(enumerate(sorted(zip(times, widths, strict=True))))
    free, events, conflicts = {0, 1, 2, 3}, [], 0
    for number, (when, width) in begin.items():
        events.append((when, number, None, width))
    starts = {}
    while events:
        events.sort(key=lambda event: (event[0], event[2] is None, event[1]))
        when, number, planned, width = events.pop(0)
        if planned is not None and planned <= free:
            free -= planned
            starts[number] = when
        else:
            conflicts += planned is not None
            chosen = set(sorted(free)[:width])
            if len(chosen) == width:
                events.append((when + 1 + 0.5 * width, number, chosen, width))
            else:
                starts[number] = 100 + starts[1 - number] + 1 + 0.5 * width
    assert run.figures["conflicts"] == conflicts
    assert (run.first_start_us / US).tolist() == [starts[number] for number in begin]


def test_what_was_planned_before_a_conflict_is_planned_anew():
    run = _run([(0, 1, 5), (0, 2, 5)], [0, 1], "omega", {"job_s": 1, "task_s": 0})
    assert run.figures == {"commits": 2, "conflicts": 1, "conflict_share": pytest.approx(1 / 3), "busy_h": 3 / 3600}
    assert (run.first_start_us / US).tolist() == [1, 2]
