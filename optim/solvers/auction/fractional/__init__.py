"""Goods that can be split: optimum and payments, and the way back to whole bundles."""
