"""The packing LP: at most one schedule per job, and no row of a server class above its capacity.

Column generation with a master solved by an interior-point or a first-order method, the price search that generates
columns, and dual points with their bounds.
"""
