"""Capacity that must last the hour: its probability, fast, and rows that all footprints which keep enough fulfil."""
