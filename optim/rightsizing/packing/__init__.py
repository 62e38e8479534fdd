"""From phases to demands that change with the work done: how much more is packed, and what then really happens."""

from optim.rightsizing.packing.bin_packing import Pairing as Pairing
from optim.rightsizing.packing.bin_packing import pair_jobs as pair_jobs
from optim.rightsizing.packing.recurring_jobs import Profile as Profile
from optim.rightsizing.packing.recurring_jobs import admission_instance as admission_instance
from optim.rightsizing.packing.recurring_jobs import demand_by_slot as demand_by_slot
from optim.rightsizing.packing.recurring_jobs import phase_spread as phase_spread
from optim.rightsizing.packing.recurring_jobs import profile_of as profile_of
from optim.rightsizing.packing.study import PackingOptions as PackingOptions
from optim.rightsizing.packing.study import PackingRow as PackingRow
from optim.rightsizing.packing.study import Replay as Replay
from optim.rightsizing.packing.study import pack as pack
from optim.rightsizing.packing.study import replay as replay
