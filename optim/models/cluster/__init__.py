"""The data of cluster simulation: jobs, machines, event logs, metrics and proofs of bounds."""
