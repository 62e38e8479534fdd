"""Branch and price: what splits the set of plans, and what bounds a part of it.

Restrictions of a node and pricing under them, the node's master, the choice of a split, and dives that turn
fractional points into plans on real servers.
"""
