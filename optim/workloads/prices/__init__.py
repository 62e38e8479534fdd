"""Spot prices and availability, read from files or generated."""
