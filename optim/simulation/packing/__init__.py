"""From phases to demands that change with the work done: how much more is packed, and what then really happens."""

from optim.simulation.packing.jobs import admission_instance as admission_instance
from optim.simulation.packing.pairing import Pairing as Pairing
from optim.simulation.packing.pairing import pair_jobs as pair_jobs
from optim.simulation.packing.profiles import Profile as Profile
from optim.simulation.packing.profiles import demand_by_slot as demand_by_slot
from optim.simulation.packing.profiles import phase_spread as phase_spread
from optim.simulation.packing.profiles import profile_of as profile_of
from optim.simulation.packing.replay import Replay as Replay
from optim.simulation.packing.replay import replay as replay
from optim.simulation.packing.study import PackingOptions as PackingOptions
from optim.simulation.packing.study import PackingRow as PackingRow
from optim.simulation.packing.study import pack as pack
