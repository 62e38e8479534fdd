"""The packing LP: at most one schedule per job, and no row of a server class above its capacity.

Column generation with a master by interior points or by simplex, the price search that starts it, and the cuts
from single servers' integer packings that tighten it.
"""
