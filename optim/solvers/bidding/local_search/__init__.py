"""Footprints by steps: additions, removals and exchanges."""
