"""What policies that go slot by slot see and place, against a record: see `tests.support.golden`."""

import pytest

import optim
from optim.core.stopping import IterationLimit
from tests.support.admission.seeded import seeded_instance as of_all_traits
from tests.support.admission.slot_runs import seeded_instance
from tests.support.admission.tiny import BY_HAND
from tests.support.golden import check

RIVALS = ("fifo", "drf", "rrh", "dorm")


def played(instance, **options):
    """Let every policy plan."""
    return [optim.solve(instance, name, seed=2, options=options.get(name, {})) for name in RIVALS]


def stopped(slots):
    """Let every policy plan so many slots."""
    instance = optim.reference_instance("tiny-2")
    return [optim.solve(instance, name, stop=IterationLimit(slots)) for name in RIVALS]


RUNS = {
    "tiny": lambda: [played(optim.reference_instance(f"tiny-{k}")) for k in range(3)],
    "small": lambda: [optim.solve(optim.reference_instance("small-0"), name) for name in ("fifo", "rrh")],
    "by-hand": lambda: [played(one) for one in BY_HAND.values()],
    "drawn": lambda: [played(seeded_instance(seed, max_jobs=9)) for seed in range(6)],
    "traits": lambda: [played(of_all_traits(seed)) for seed in range(0, 32, 3)],
    "stopped": lambda: [stopped(slots) for slots in (0, 1, 3)],
    "options": lambda: played(
        optim.reference_instance("tiny-2"),
        fifo={"least_workers": 2, "most_workers": 5},
        rrh={"alpha": 0.9, "threshold": 1.0, "is_cost_shared": False},
        dorm={"theta1": 0.5, "theta2": 0.0, "most_waiting": 2},
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/admission/slots", name, RUNS[name])
