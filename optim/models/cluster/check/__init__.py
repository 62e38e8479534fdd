"""The independent checker of cluster runs: replays a log and recomputes bounds, sharing nothing with engine and solvers."""

from optim.models.cluster.check.bounds import least_makespan as least_makespan
from optim.models.cluster.check.bounds import least_mean_completion as least_mean_completion
from optim.models.cluster.check.bounds import least_slowdown as least_slowdown
from optim.models.cluster.check.bounds import most_by_prices as most_by_prices
from optim.models.cluster.check.claims import check_runs as check_runs
from optim.models.cluster.check.claims import is_bounded as is_bounded
from optim.models.cluster.check.plan_replay import replay_plan as replay_plan
from optim.models.cluster.check.replay import replay as replay
