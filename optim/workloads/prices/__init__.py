"""Spot prices and availability: from files, and from a generator."""
