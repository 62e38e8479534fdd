"""Benchmarks of the parameter-server kernels: cases, baselines, and memory speed."""
