"""Workloads of a GPU cluster: jobs of public traces and of the user's tables."""
