"""Readers of public cluster traces: jobs and machines, for use in several problems."""
