"""What branch and price does on the way, against a record: see `tests.support.golden`."""

import pytest

import optim
from tests.support.admission.slot_runs import seeded_instance
from tests.support.admission.tiny import BY_HAND
from tests.support.golden import check


def branched(instance, **options):
    """Search a tree from a plan that a few moves give."""
    return optim.solve(instance, "branch-and-price", options={"search_moves": 0, **options})


RUNS = {
    "tiny-0": lambda: branched(optim.reference_instance("tiny-0")),
    "tiny-1": lambda: branched(optim.reference_instance("tiny-1"), max_nodes=12),
    "tiny-2": lambda: branched(optim.reference_instance("tiny-2"), max_nodes=4),
    "by-hand": lambda: [branched(one) for one in BY_HAND.values()],
    "drawn": lambda: [branched(seeded_instance(seed), max_nodes=20) for seed in range(16)],
}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/admission/tree", name, RUNS[name])
