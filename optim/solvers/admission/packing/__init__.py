"""The packing LP: every job at most one schedule, no row of a class of servers above its capacity.

Column generation with a master by interior points or by simplex, the search for good prices that starts it,
and the cuts of single servers' integer packings that tighten it.
"""
