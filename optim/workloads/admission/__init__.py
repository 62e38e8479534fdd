"""Admission instances: drawn from calibrated distributions, or sampled from traces."""
