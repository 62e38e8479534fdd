"""The independent checker of cluster runs: it replays logs, recomputes bounds, and shares no code with engine and solvers."""

from optim.models.cluster.check.bounds import max_by_prices as max_by_prices
from optim.models.cluster.check.bounds import min_makespan as min_makespan
from optim.models.cluster.check.bounds import min_mean_completion as min_mean_completion
from optim.models.cluster.check.bounds import min_slowdown as min_slowdown
from optim.models.cluster.check.claims import check_runs as check_runs
from optim.models.cluster.check.claims import is_bounded as is_bounded
from optim.models.cluster.check.replay import replay as replay
