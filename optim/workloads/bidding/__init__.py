"""Bidding instances from spot price history, recorded or generated."""
