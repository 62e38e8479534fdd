"""Requests and limits of containers: forecasters, policies, tuning at equal risk, recommendation, packing."""

from optim.rightsizing.comparison import Row as Row
from optim.rightsizing.comparison import compare_policies as compare_policies
from optim.rightsizing.engine import Outcome as Outcome
from optim.rightsizing.engine import measure as measure
from optim.rightsizing.policy import make_plan as make_plan
from optim.rightsizing.policy import policy_names as policy_names
from optim.rightsizing.tuning import Measure as Measure
from optim.rightsizing.tuning import Slo as Slo
from optim.rightsizing.tuning import tune as tune
from optim.rightsizing.world import CalibrationTestSplit as CalibrationTestSplit
from optim.rightsizing.world import PhaseLabels as PhaseLabels
from optim.rightsizing.world import World as World
from optim.rightsizing.world import make_world as make_world
