"""Multipliers, covers, boxes and trees about small markets that may prove something or not."""

from optim.models.bidding.decision import CHANGE, RATE, THETA, Cover, Multipliers, RatioProof, TreeNode


def random_multipliers(facts, rng, num_covers=0):
    """Draw multipliers of every type; for one in eight a size or a sign is wrong."""
    instance, cells = facts.instance, len(facts.cell_weight)
    size, entries = instance.num_bids, int(rng.integers(0, 6))
    is_common, is_wrong = facts.has_common_loss, int(rng.integers(8)) == 0
    return Multipliers(
        point=rng.integers(0, 24, cells + is_wrong * int(rng.integers(2))) / 2,
        eviction=rng.integers(0, 5, cells) / 4,
        attribution_cell=rng.integers(0, cells, entries), attribution_bid=rng.integers(0, size + is_wrong, entries),
        attribution=rng.integers(0, 5, entries) / 4, cap=rng.integers(-int(is_wrong), 4, len(instance.caps.limit)) / 16,
        work=float(rng.integers(0, 3)) / 8, cover=rng.integers(0, 4, int(rng.integers(num_covers + 1))) / 32,
        lost_by_rate=is_common * float(rng.integers(0, 4)) / 16, lost_by_theta=is_common * float(rng.integers(0, 4)) / 8,
        theta=is_common * float(rng.integers(-2, 3)) / 16, rate=is_common * float(rng.integers(-2, 3)) / 32,
    )  # fmt: skip


def random_covers(instance, rng):
    """Draw up to two covers where capacity must last."""
    if instance.survival is None:
        return ()
    size = len(instance.markets)
    return tuple(
        Cover(weight=rng.integers(0, 3, size), short_of=int(rng.integers(1, 6))) for _ in range(rng.integers(3))
    )


def random_tree(facts, rng):
    """Draw a tree of splits by bids, change and sums, of depth two."""
    instance = facts.instance
    covers = random_covers(instance, rng)
    multipliers = tuple(random_multipliers(facts, rng, len(covers)) for _ in range(4))
    kinds = [*range(instance.num_bids), CHANGE, *((THETA, RATE) if facts.has_common_loss else ())]
    splits = [
        TreeNode(bid=int(rng.choice(kinds)), value=int(rng.integers(0, 3)), low=2 * k + 1, high=2 * k + 2)
        for k in range(3)
    ]
    leaves = [TreeNode(multipliers=k) for k in range(4)]
    nodes = [leaves[0]] if rng.integers(4) == 0 else [splits[0], *leaves[:2]] if rng.integers(2) else [*splits, *leaves]
    return RatioProof(ratio=float(rng.integers(1, 9)) / 16, nodes=tuple(nodes), multipliers=multipliers, covers=covers)
