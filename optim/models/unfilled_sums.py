"""Programmes in CVXPY without warnings of what they don't compute.

CVXPY finds the shape of a sum by summing memory that nobody filled; where that happens to hold infinities of both signs
NumPy warns. Programmes are built, copied and solved below `unfilled_sums`.
"""

import numpy as np

unfilled_sums = np.errstate(invalid="ignore", over="ignore")
"""A decorator, of functions that build or solve programmes."""
