"""Decisions carried out by real processes: jobs of an admission plan, and leases of auctions and spot simulations."""
