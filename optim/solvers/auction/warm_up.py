"""Compile the loops before the clock of a solve starts: once a process, as compiling is no solving."""

from functools import cache

from optim.models.auction.document import SCHEMA, AppDocument, AuctionDocument, BidsDocument, MachineDocument
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.reading import instance_from_document
from optim.solvers.auction.allocation.allocator import Allocator
from optim.solvers.auction.counting.relaxation import CountRelaxation
from optim.solvers.auction.packing.packer import Packer
from optim.solvers.auction.tables import Tables


def smallest_instance() -> AuctionInstance:
    """Return two apps that bid for one GPU each, one of them within a rack."""
    bids = BidsDocument(empty_rho=2.0, rows=[(1, "slot", 1.0)]), BidsDocument(empty_rho=2.0, rows=[(1, "rack", 1.0)])
    apps = [AppDocument(id=name, bids=rows) for name, rows in zip("ab", bids, strict=True)]
    machine = MachineDocument(rack=0, slots=[2])
    return instance_from_document(AuctionDocument(schema=SCHEMA, name="smallest", machines=[machine], apps=apps))


@cache
def compile_loops() -> None:
    """Count, place and exchange on the smallest instance."""
    tables = Tables.build(smallest_instance())
    relaxed = CountRelaxation.of(tables)
    choice, _ = relaxed.choice(), relaxed.without(0)
    rows = tables.chosen_rows(choice)
    packer, allocator = Packer(tables.instance), Allocator(tables)
    packer.place(rows)
    packer.search(rows)
    allocator.improved(allocator.without(allocator.repaired(choice), 0), seed=0, moves=1)
