"""Compile the loops before a clock starts, on an auction of two apps."""

import numpy as np

from optim.solvers.auction.allocation_loop import exchange, fill_up, insert, take_back
from optim.solvers.auction.count_loop import best_choice, best_without, head_tables, tail_tables
from optim.solvers.auction.packing_loop import concretise, rearrange, reserve


def compile_loops() -> None:
    """Compile every loop of the auction's solvers, or load it from the cache; quick the second time."""

    def ints(*values: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
        return np.array(values, dtype=np.int64)

    offset, size, level, weight = ints(0, 1, 2), ints(1, 1), ints(0, 2), np.ones(2)
    head, tail = head_tables(offset, size, weight, 2), tail_tables(offset, size, weight, 2)
    choice = best_choice(head, offset, size, weight)
    best_without(head, tail, offset, size, weight, 0, choice)
    slot_machine, machine_rack, free = ints(0), ints(0), ints(2)
    place = ints(-1, -1)
    reserve(level, size, ints(-1, -1), slot_machine, machine_rack, free, free, free, place)
    rearrange(level, size, ints(-1, -1), slot_machine, machine_rack, free, free, free, place, 0, 1)
    concretise(level, size, place, slot_machine, machine_rack, free)
    named = (ints(0, 0, 0), ints(), ints())
    rows = (offset, level, size, weight, named)
    state = (ints(-1, -1), np.zeros((2, 1), dtype=np.int64), ints(2))
    tree = (slot_machine, machine_rack)
    insert(ints(0, 1), ints(0, 1), *rows, *state, *tree)
    fill_up(*rows, *state, *tree, -1)
    exchange(*rows, *state, *tree, -1, 0, 1)
    take_back(0, state[1], state[2])
