"""Admission instances, generated from calibrated distributions or sampled from traces."""
