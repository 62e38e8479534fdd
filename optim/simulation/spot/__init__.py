"""Spot markets: training jobs on instances that the market takes away, policy by policy."""
