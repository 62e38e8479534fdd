"""Policies of a cluster, one a file: what each orders jobs by, whose it is, and what of it was completed here."""
