"""Rules that decide on each job at its arrival, at posted prices of all resources.

Price functions and their ranges, prices learned from earlier days, the runs over all arrivals with their reservations, and
the competitive-ratio theorems.
"""
