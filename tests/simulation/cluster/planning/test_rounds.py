"""Time shares in rounds, by hand."""

import numpy as np

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import PPM, US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.engine import play_plans
from tests.support.small_clusters import workload


def test_types_of_which_no_machine_is_there_take_no_part():
    """Each job can run on one machine, at half its speed on a third type, of which the cluster has no machine."""
    slow = np.array([[2 * PPM, 0, PPM], [0, 2 * PPM, PPM]])
    jobs = workload([(0, 1, 600), (0, 1, 900)], gpu_type_slowdown_ppm=slow)
    cluster = Cluster(gpus=np.array([1, 1]), kind=np.array([0, 1]), kinds=("old", "odd", "new"))
    run = play_plans(jobs, cluster, make_policy("max-min", jobs), EngineOptions(overhead_s=0), 0)
    assert (run.end_us / US).tolist() == [1200.0, 1800.0]
