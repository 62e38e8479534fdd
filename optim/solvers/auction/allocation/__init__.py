"""Allocations on concrete GPUs: built greedily, improved by exchange, repaired."""
