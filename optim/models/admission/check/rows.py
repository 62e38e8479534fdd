"""How violated rows are named: the model's number and the indices in words.

Row (2) is (A.2) of docs/mathematics/admission.md, and so on.
"""

from optim.models.admission.check.facts import Facts
from optim.models.admission.instance import MICRO
from optim.models.admission.proof import Side

WORK = "(2) work"
WORKERS_AT_ONCE = "(3) workers at once"
WORKER_CAPACITY = "(4) worker capacity"
PS_CAPACITY = "(5) PS capacity"
SHARED_CAPACITY = "(4)+(5) shared capacity"
BANDWIDTH = "(6) bandwidth"
PS_PER_WORKER = "(7) PS at most workers"
COMPLETION = "(8) completion"
ARRIVAL = "(9)-(13) arrival"
INDEX = "(9)-(13) index"
COUNT = "(9)-(13) count"
ROWS = "(9)-(13) rows"
SHARE = "max_share_per_server"
PAYOFF = "(21) payoff"
PRICE = "price"
CUT = "cut"
TREE = "tree"
BOUND = "bound"
CERTIFICATE = "certificate"


def in_job(facts: Facts, job: int, slot: int | None = None) -> str:
    """Return "job j3, slot 7"."""
    return f"job {facts.jobs[job].name}" + ("" if slot is None else f", slot {slot}")


def on_server(facts: Facts, side: Side, server: int, slot: int) -> str:
    """Return "server 3 (p2.xlarge), slot 7"."""
    servers = facts.servers(side)
    return f"server {server} ({servers.types[servers.class_of(server)]}), slot {slot}"


def in_class(facts: Facts, side: Side, server_class: int, slot: int) -> str:
    """Return "worker servers p2.xlarge, slot 7"."""
    kind = "shared" if facts.is_shared else "PS" if side is Side.PS else "worker"
    return f"{kind} servers {facts.servers(side).types[server_class]}, slot {slot}"


def decimal_text(micro: int) -> str:
    """Return an amount of 1e-6 units as an exact decimal."""
    sign, (whole, part) = "-" if micro < 0 else "", divmod(abs(micro), MICRO)
    return f"{sign}{whole}.{part:06d}".rstrip("0").rstrip(".")
