"""Solvers of the admission problem. Importing this package registers them all."""

from optim.solvers.admission import column_generation as column_generation
from optim.solvers.admission import online as online
