"""Readers of public traces of clusters: jobs, and the machines that ran them, of no one problem."""
