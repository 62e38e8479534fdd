"""Solvers of the admission problem. Importing this package registers them all."""

from optim.solvers.admission import branch_and_price as branch_and_price
from optim.solvers.admission import column_generation as column_generation
from optim.solvers.admission import compact_milp as compact_milp
from optim.solvers.admission import dorm as dorm
from optim.solvers.admission import drf as drf
from optim.solvers.admission import exact as exact
from optim.solvers.admission import fifo as fifo
from optim.solvers.admission import online as online
from optim.solvers.admission import online_learned as online_learned
from optim.solvers.admission import rrh as rrh
from optim.solvers.admission import search as search
