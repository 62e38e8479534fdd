"""Cluster policies, one per file, each with its source and the assumptions that complete it."""
