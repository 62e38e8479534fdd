"""What branch and price does on the way, against a record: see `tests.support.golden`."""

from unittest import mock

import pytest

import optim
from optim.core.stopping import IterationLimit
from optim.solvers.admission.cuts.separation import CountSeparator, CutSeparator
from tests.support.admission.seeded import seeded_instance as of_all_traits
from tests.support.admission.slot_runs import seeded_instance
from tests.support.admission.tiny import BY_HAND, job_document, tiny_instance
from tests.support.golden import check


def branched(instance, **options):
    """Search a tree from a plan that a few moves give."""
    return optim.solve(instance, "branch-and-price", options={"search_moves": 0, **options})


def stopped(nodes):
    """Stop a search of a tree after so many nodes or moves."""
    instance = optim.reference_instance("tiny-1")
    return optim.solve(instance, "branch-and-price", options={"search_moves": 100}, stop=IterationLimit(nodes))


def without_cuts():
    """Search trees in which single servers don't hold what their class does."""
    found = []
    with (
        mock.patch.object(CutSeparator, "separate", return_value=[]),
        mock.patch.object(CountSeparator, "separate", return_value=[]),
    ):
        for worker, room, name in ((3, 5, "gpus"), (2, 3, "gpus"), (3, 4, "box")):
            jobs = [job_document(f"j{i}", worker=[worker, 0], chunks=2, arrival=i // 3) for i in range(4)]
            servers = [{"type": name, "capacity": [room, 4], "count": 3}]
            form = {"shared_servers": servers} if name == "box" else {"worker_servers": servers}
            found.append(branched(tiny_instance(*jobs, **form), max_nodes=30))
        found += [branched(of_all_traits(seed), max_nodes=8) for seed in range(1, 32, 10)]
    return found


RUNS = {
    "tiny-0": lambda: branched(optim.reference_instance("tiny-0")),
    "tiny-1": lambda: branched(optim.reference_instance("tiny-1"), max_nodes=12),
    "tiny-2": lambda: branched(optim.reference_instance("tiny-2"), max_nodes=4),
    "by-hand": lambda: [branched(one) for one in BY_HAND.values()],
    "traits": lambda: [branched(of_all_traits(seed), max_nodes=12) for seed in range(0, 32, 4)],
    "stopped": lambda: [stopped(nodes) for nodes in (0, 1, 4)],
    "without-cuts": without_cuts,
    "drawn": lambda: [branched(seeded_instance(seed), max_nodes=20) for seed in range(10)],
}


@pytest.mark.prove
@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/admission/tree", name, RUNS[name])
