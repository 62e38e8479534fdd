"""Solvers of general linear and mixed-integer programmes, independent of the problems."""
