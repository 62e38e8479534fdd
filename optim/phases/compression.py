"""Sequences of phases made short: repeated blocks are packed into one token."""

from collections.abc import Sequence

PERIODS = (1, 2, 3)
"""Lengths of blocks, in the order in which they are looked for; 1 only joins equal neighbours."""


def pack(tokens: Sequence[str | int]) -> tuple[str, ...]:
    """Replace each block that is repeated at least twice by one token ``(x y)+``.

    Blocks of two tokens come first, then those of three; of several repetitions the leftmost counts, with as many
    repeats as there are. This goes on until nothing changes, so that packing a packed sequence leaves it as it is, and
    blocks may hold blocks. Equal neighbours become one.

    Examples
    --------
    >>> pack([0, 1, 2, 3, 2, 3, 2, 3])
    ('0', '1', '(2 3)+')
    """
    packed = tuple(str(token) for token in tokens)
    while True:
        shorter = packed
        for period in PERIODS:
            shorter = _pack_once(shorter, period)
        if shorter == packed:
            return packed
        packed = shorter


def _pack_once(tokens: tuple[str, ...], period: int) -> tuple[str, ...]:
    """Pack all repetitions of one period from left to right."""
    out: list[str] = []
    place = 0
    while place < len(tokens):
        block = tokens[place : place + period]
        end = place + period
        while len(block) == period and tokens[end : end + period] == block:
            end += period
        if end - place > period:
            out.append(block[0] if period == 1 else f"({' '.join(block)})+")
            place = end
        else:
            out.append(tokens[place])
            place += 1
    return tuple(out)
