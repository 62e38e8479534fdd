"""Admission instances: drawn from calibrated distributions, built to be hard, or sampled from traces."""
