"""Spot markets: prices, bills, evictions, and the footprint with the lowest cost per work."""
