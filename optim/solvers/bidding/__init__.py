"""Solvers of the bidding problem. Importing this package registers them all."""

from optim.solvers.bidding import dinkelbach as dinkelbach
from optim.solvers.bidding import frontier as frontier
from optim.solvers.bidding import greedy as greedy
