"""Solvers of the admission problem. Importing this package registers them all."""
