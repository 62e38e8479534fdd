"""Rules that decide on each job at its arrival, at posted prices of all resources.

Price functions and their ranges, the cluster state that the rules use, the run over all arrivals, and the
competitive-ratio theorems.
"""
