"""Spot markets: simulated training jobs on instances that the provider may evict, one run per policy."""
