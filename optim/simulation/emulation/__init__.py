"""Decisions run with real processes: the jobs of an admission plan, and the leases of a spot simulation."""
