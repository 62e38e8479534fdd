"""The compiled engine of the capacity scheduler: what `optim.simulation.cluster.policies.yarn_cs` plans, without planning it anew."""
