"""Auctions of GPUs among training apps: instances, fairness, bids, formal programmes and the checker."""
