"""Branch and price: a node's restrictions, pricing under them, its master and its bound; and the tree of nodes.

A split divides the plans of a node between two children. Dives turn fractional points into plans on real servers.
"""
