"""OASiS by hand: the payoff of a job at prices."""

import numpy as np
import pytest

from optim.models.admission.data import SigmoidUtility
from optim.models.cluster.cluster import Cluster
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.policies.oasis import Oasis, OasisOptions
from tests.support.small_clusters import workload


@pytest.mark.parametrize("gang", [1, 2])
def test_a_job_pays_for_the_part_of_a_slot_that_its_work_ends_in(gang):
    """One and a half slots of work, almost without value once it is late, at the same price in each slot."""
    policy = Oasis(OasisOptions(slot_s=900.0), workload([(0, gang, 1350)]))
    policy.rules(EngineOptions(overhead_s=0))
    policy.begin(Cluster.grid("1x2"), 0)
    policy.utility = [SigmoidUtility(theta1=100.0, theta2=5.0, theta3=3.0)]
    (gain,) = policy._payoffs(np.full(40, 4.0))
    assert gain == pytest.approx(100.0 / (1 + np.exp(5.0 * (1.5 - 3.0))) - gang * 1.5 * 4.0)
