"""Figures and pages for people: plots of records, runs, leases, auctions and phases."""
