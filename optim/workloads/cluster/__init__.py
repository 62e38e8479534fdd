"""Workloads of a cluster of GPUs: jobs of public traces and of one's own tables."""
