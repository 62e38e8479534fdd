"""Spot markets: price histories, bills, evictions, lifetimes of machines, and several zones on one grid."""
