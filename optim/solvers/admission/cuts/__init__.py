"""Cuts of the packing LP: their separation and storage."""
