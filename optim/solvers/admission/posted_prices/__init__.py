"""Rules that decide on a job at its arrival, at prices that every resource has posted.

Price functions and the ranges that they move in, the cluster's state as such a rule sees it, the run over all
arrivals, and the theorems on what it earns.
"""
