"""Spot markets from files and from a calibrated generator, and bidding instances made of them."""
