"""What policies share that run a cluster slot by slot, without planning ahead.

What a policy sees of a slot, the servers that it places jobs on, the run over all slots, and the solution that
comes of it; beside them Dorm's division of a cluster.
"""
