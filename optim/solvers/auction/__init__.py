"""Solvers of the auction. Importing this package registers them all."""
