"""Policies that tests run through: those of the registry, without references that know the future."""

from optim.core.policies import causal_names, default_names, policies_of, shipped_names

CLUSTER_POLICIES = shipped_names("cluster")
COMPILED_POLICIES = default_names("cluster")
"""Those that the compiled loop plays by a key."""

WRAPPERS = shipped_names("wrappers")
SPOT_POLICIES = causal_names("spot")
ZONE_POLICIES = {name: policies_of("zones")[name].make for name in causal_names("zones")}
