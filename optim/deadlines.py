"""Deadlines on spot machines, for custom launchers: fit a `DeadlinePolicy`, and query it for the machines to use at every tick.

>>> from optim.deadlines import DeadlinePolicy, DeadlineView, Machines, SpellWatch
>>> policy = DeadlinePolicy.fit([], work_s=36_000, deadline_s=43_200, setup_s=600, spot_usd=0.9, on_demand_usd=3.0)
>>> policy.decide(DeadlineView(elapsed_s=6300, work_left_s=36_000, is_available=False)) is Machines.ON_DEMAND
True
"""

from optim.models.bidding.market.lifetimes import AvailabilityTrace
from optim.models.bidding.market.spells import SpellHazards, fit_traces, prior_hazards
from optim.simulation.spot.deadline_policy import DeadlinePolicy, DeadlineView, Machines, SpellWatch
from optim.solvers.bidding.deadline_table import DeadlineJob, DeadlineTable

__all__ = [
    "AvailabilityTrace",
    "DeadlineJob",
    "DeadlinePolicy",
    "DeadlineTable",
    "DeadlineView",
    "Machines",
    "SpellHazards",
    "SpellWatch",
    "fit_traces",
    "prior_hazards",
]


def __dir__() -> list[str]:
    return __all__
