"""Themis: rounds of partial-allocation auctions for leases of GPUs."""
