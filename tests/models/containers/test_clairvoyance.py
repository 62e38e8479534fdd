"""The checker of oracle plans by hand: four samples of 15 s, two cycles of two, the first equal for all plans."""

from dataclasses import replace

import numpy as np
import pytest

from optim.models.containers.clairvoyance import ClairvoyantClaim, check_clairvoyant
from optim.models.containers.series import CPU, MEMORY, ContainerSeries

SERIES = ContainerSeries(
    resources=(CPU, MEMORY),
    containers=("a",),
    lengths=np.array([4]),
    values=np.repeat([[1.0], [1.0], [3.0], [1.0]], 2, axis=1),
    time_s=15.0 * np.arange(4),
    interval_s=15.0,
)
CLAIM = ClairvoyantClaim(
    resource=CPU.name, cycle_samples=2, first=1.0, allowed=0.5, share=1.0, checkpoint_s=60.0, startup_s=30.0,
    price=6.0, bound=4.0, total=4.0, plan={0: (1.0, 1.0)},
)  # fmt: skip
"""Of a rate, half of the later samples may be above the amount: 2 + 2. A price of 6 makes 0, 1 and 3 cost 6, 5 and 6."""

HELD = replace(CLAIM, resource=MEMORY.name, allowed=1.0, price=0.0, bound=8.0, total=8.0, plan={0: (1.0, 3.0)})
"""Memory is killed at second 30 and loses those, and 30 to start, at 3 units: 12 in samples, more than the 6 of holding it."""


@pytest.mark.parametrize("claim", [CLAIM, HELD])
def test_accepts_what_is_so(claim):
    assert check_clairvoyant(SERIES, claim) == []


def test_a_rate_above_its_amount_is_throttled_and_a_held_resource_is_killed_once_a_cycle():
    assert check_clairvoyant(SERIES, replace(CLAIM, total=5.0)) == ["the plan totals 4, not 5"]
    nothing = replace(HELD, plan={0: (1.0, 0.0)})  # 2 + 12, and the maximum of violations
    assert check_clairvoyant(SERIES, nothing) == [
        "the plan totals 14, not 8",
        "the plan's 14 lies more than 1 % above the bound of 8",
    ]


def test_without_restarts_samples_above_the_amount_are_all_that_counts():
    """One sample of four."""
    for resource in (CPU, MEMORY):
        free = replace(CLAIM, resource=resource.name, checkpoint_s=None, allowed=0.25, price=12.0)
        assert check_clairvoyant(SERIES, free) == []
        assert "the plan's violations are 0.25, more than 0.2" in check_clairvoyant(SERIES, replace(free, allowed=0.2))
