"""Cuts of the packing LP: what separates them, and how they are stored."""
