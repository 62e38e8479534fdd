"""Compile the loops before a clock starts, on an auction of two apps."""

import numpy as np

from optim.models.auction.instance import Apps, AuctionInstance, Bids, Cluster, as_floats, as_ints
from optim.solvers.auction.allocation.allocator import Allocator
from optim.solvers.auction.counting.relaxation import CountRelaxation
from optim.solvers.auction.packing.packer import Packer
from optim.solvers.auction.tables import Tables


def compile_loops() -> None:
    """Compile every loop of the auction's solvers, or load it from the cache; quick the second time."""
    tables = Tables.build(_smallest())
    relaxed = CountRelaxation(tables)
    relaxed.without(0)
    choice = relaxed.choice()
    packer, allocator = Packer(tables.instance), Allocator(tables)
    packer.place(tables.chosen_rows(choice))
    packer.search(tables.chosen_rows(choice))
    allocation = allocator.repaired(choice)
    allocator.improved(allocator.without(allocation, 0), seed=0, moves=1)


def _smallest() -> AuctionInstance:
    """Return two apps that bid for one GPU each, one of them within a rack."""
    none = as_ints(np.zeros(0))
    return AuctionInstance(
        name="smallest",
        cluster=Cluster(
            machine_rack=as_ints([0]), slot_machine=as_ints([0]), slot_gpus=as_ints([2]), slot_free=as_ints([2])
        ),
        apps=Apps(
            ids=("a", "b"),
            empty_rho=as_floats([2.0, 2.0]),
            gang=as_ints([1, 1]),
            elapsed_min=as_floats([0.0, 0.0]),
            work_min=as_floats([1.0, 1.0]),
            ideal_min=as_floats([1.0, 1.0]),
        ),
        bids=Bids(
            app=as_ints([0, 1]),
            gpus=as_ints([1, 1]),
            locality=as_ints([0, 2]),
            rho=as_floats([1.0, 1.0]),
            named_row=none,
            named_machine=none,
            named_gpus=none,
        ),
    )
