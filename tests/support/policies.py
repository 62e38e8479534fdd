"""Policies that tests iterate over: those of the registry, without references that know the future."""

from optim.core.policies import causal_names, policies_of, shipped_names
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.index.policy import IndexPolicy
from tests.support.small_clusters import workload

CLUSTER_POLICIES = shipped_names("cluster")
COMPILED_POLICIES = tuple(
    name for name in CLUSTER_POLICIES if isinstance(make_policy(name, workload([(0, 1, 1)])), IndexPolicy)
)
"""Policies that the compiled loop runs by a key, whether or not a run includes them by default."""

WRAPPERS = shipped_names("wrappers")
SPOT_POLICIES = causal_names("spot")
ZONE_POLICIES = {name: policies_of("zones")[name].make for name in causal_names("zones")}
