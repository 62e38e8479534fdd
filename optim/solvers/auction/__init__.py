"""Solvers of the auction. Importing this package registers them all."""

from optim.solvers.auction import exact as exact
from optim.solvers.auction import greedy as greedy
