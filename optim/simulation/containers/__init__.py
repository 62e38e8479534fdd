"""Containers whose allocations are set every ten minutes: policies, references, and comparison at equal risk."""

from optim.simulation.containers.catalogue import make_plan as make_plan
from optim.simulation.containers.catalogue import policy_names as policy_names
from optim.simulation.containers.comparison import Row as Row
from optim.simulation.containers.comparison import compare_policies as compare_policies
from optim.simulation.containers.metrics import Outcome as Outcome
from optim.simulation.containers.metrics import measure as measure
from optim.simulation.containers.requirement import Measure as Measure
from optim.simulation.containers.requirement import Requirement as Requirement
from optim.simulation.containers.tuning import tune as tune
from optim.simulation.containers.world import PhaseLabels as PhaseLabels
from optim.simulation.containers.world import Trial as Trial
from optim.simulation.containers.world import World as World
from optim.simulation.containers.world import make_world as make_world
