"""Small auctions of every form by a seed, with plans and proofs that may hold or not: input for summaries and the checker."""

from typing import Any

import numpy as np

from optim.models.auction.codec import AuctionDocument
from optim.models.auction.data import as_floats, as_ints
from optim.models.auction.decision import (
    AuctionPlan,
    AuctionProof,
    CountProof,
    PaymentRule,
    PriceProof,
    TreeNode,
    TreeProof,
    Witness,
    sorted_entries,
)
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.payment import settle

LOCALITIES = ("slot", "machine", "rack", "cluster")
SLOWDOWNS = ("compute-bound", "network-bound", {"slot": 1.0, "machine": 1.2, "rack": 1.5, "cluster": 2.5})
MACHINES = (
    [
        {"rack": 0, "slots": [2, 2], "free": [1, 2]},
        {"rack": 0, "slots": [2, 2]},
        {"rack": 1, "slots": [4], "free": [3]},
    ],
    [{"rack": 0, "slots": [3], "free": [2]}, {"rack": 0, "slots": [2]}, {"rack": 1, "slots": [1, 3]}],
)


def seeded_document(seed: int, num_apps: int = 4) -> dict[str, Any]:
    """Return the document of an auction on up to 11 GPUs; apps bid by lists, by names of machines or by profiles."""
    rng = np.random.default_rng(seed)
    return {
        "schema": "optim/auction/1", "name": f"seeded-{seed}", "machines": MACHINES[seed % 2],
        "apps": [_app(rng, i) for i in range(num_apps)], "lease_min": float(rng.choice([10, 20])),
        "horizon": str(rng.choice(["hold", "lease"])), "empty_value": "zero" if seed % 5 == 4 else "positive",
    }  # fmt: skip


def seeded_auction(seed: int) -> AuctionInstance:
    """Return the instance of `seeded_document`."""
    from optim.models.auction.problem import PROBLEM

    return PROBLEM.instance_from_document(document_of(seeded_document(seed)))


def document_of(document: dict[str, Any]) -> AuctionDocument:
    """Return the document of an instance."""
    from optim.core.documents import convert

    return convert(document, AuctionDocument, "instance")


def _app(rng: np.random.Generator, i: int) -> dict[str, Any]:
    kind = rng.integers(3)
    app: dict[str, Any] = {"id": f"a{i}", "gang": 1 if kind == 1 else int(rng.choice([1, 1, 2]))}
    if kind == 0:
        sizes = sorted({(app["gang"] * int(rng.integers(1, 4)), str(rng.choice(LOCALITIES))) for _ in range(4)})
        app["bids"] = {"empty_rho": 8.0, "rows": [[*one, float(rng.integers(4, 60)) / 8] for one in sizes]}
        return app
    if kind == 1:
        names = [[[0, 1]], [[0, 2], [1, 1]], [[2, int(rng.integers(1, 3))]]]
        app["bids"] = {"empty_rho": 8.0, "rows": [], "named": [[one, float(rng.integers(4, 60)) / 8] for one in names]}
        app |= {"elapsed_min": 3.0, "work_min": 40.0, "ideal_min": 12.0}
        return app
    trials = [
        {
            "work_min": float(work),
            "total_work_min": float(work + rng.integers(0, 50)),
            "max_gpus": int(rng.integers(1, 5)),
        }
        for work in rng.integers(5, 200, int(rng.integers(1, 4)))
    ]
    app["profile"] = {
        "elapsed_min": float(rng.choice([0, 7.5, 60])), "active_apps": float(rng.integers(1, 9)), "trials": trials,
        "slowdown": SLOWDOWNS[rng.integers(3)], "combine": str(rng.choice(["all", "best"])),
        "ideal": str(rng.choice(["time-share", "space-share"])), "estimator": str(rng.choice(["aggregate", "split"])),
    }  # fmt: skip
    if rng.integers(2):
        app["profile"]["held"] = {"gpus": 1, "locality": "machine"} if i else {"places": [[0, 1]]}
    return app


def loose_plan(instance: AuctionInstance, rng: np.random.Generator) -> AuctionPlan:
    """Give each app a row on the first remaining GPUs, whether or not they have the row's locality."""
    room, placed = instance.cluster.slot_free.copy(), []
    row = np.full(instance.num_apps, -1)
    for app in range(instance.num_apps):
        own = np.flatnonzero(instance.bids.app == app)
        chosen = int(rng.choice(own)) if len(own) and rng.integers(4) else -1
        left = 0 if chosen < 0 else int(instance.bids.gpus[chosen])
        if 0 < left <= room.sum():
            row[app] = chosen
            for slot in range(len(room)):
                taken = min(left, int(room[slot]))
                placed += [(app, slot, taken)] if taken else []
                room[slot], left = room[slot] - taken, left - taken
    low = rng.integers(0, 5, instance.num_apps) / 8
    rule, placement = list(PaymentRule)[int(rng.integers(len(PaymentRule)))], sorted_entries(placed)
    witness = Witness(row=as_ints(np.where(rng.integers(2, size=instance.num_apps) > 0, row, -1)))
    return AuctionPlan(
        row=as_ints(row), placement=placement, share_low=as_floats(low), share_high=as_floats(low + rng.choice([0, 0.25])),
        rule=rule, grants=settle(instance, placement, low, rule, rng), witnesses={int(rng.integers(instance.num_apps)): witness},
    )  # fmt: skip


def loose_prices(instance: AuctionInstance, rng: np.random.Generator) -> PriceProof:
    """Draw prices of all bundle types in bids; in one of six draws the form is wrong."""
    bids = instance.bids
    kinds = {
        (level, size, -1) for level, size in zip(bids.locality.tolist(), bids.gpus.tolist(), strict=True) if level < 4
    }
    kinds |= {(4, 1, machine) for machine in bids.named_machine.tolist()}
    price = rng.integers(0, 9, len(kinds)) / 16
    supply = price + rng.integers(0, 3, len(kinds)) / 16 * rng.integers(2)
    table = as_ints(sorted(kinds)).reshape(-1, 3) + (rng.integers(6) == 0)
    return PriceProof(
        kinds=table, row_price=as_floats(price), supply_price=as_floats(supply), is_counted=bool(rng.integers(2))
    )


def loose_tree(instance: AuctionInstance, rng: np.random.Generator, depth: int = 2) -> TreeProof:
    """Draw a tree of splits by numbers of bundles and by rows that name machines; a leaf in four claims to be full."""
    nodes: list[TreeNode] = []
    bids = instance.bids

    def grow(left: int) -> int:
        number = len(nodes)
        nodes.append(TreeNode())
        if left:
            children = {"low": grow(left - 1), "high": grow(left - 1)}
            row = int(rng.integers(max(len(bids), 1)))
            if rng.integers(2) and len(bids.named_row):
                nodes[number] = TreeNode(row=int(rng.choice(bids.named_row)), **children)
            else:
                level, size = int(bids.locality[row]), int(bids.gpus[row])
                nodes[number] = TreeNode(level=level, size=size, value=int(rng.integers(0, 3)), **children)
        else:
            nodes[number] = (
                TreeNode(is_full=True) if rng.integers(4) == 0 else TreeNode(proof=loose_prices(instance, rng))
            )
        return number

    grow(depth)
    return TreeProof(nodes=tuple(nodes))


def loose_proof(instance: AuctionInstance, rng: np.random.Generator) -> AuctionProof:
    """Draw a proof: of the welfare by a count, prices or a tree, of the others' by some of them."""

    def bound() -> Any:
        return [CountProof, lambda: loose_prices(instance, rng), lambda: loose_tree(instance, rng)][
            int(rng.integers(3))
        ]()

    others = loose_prices(instance, rng) if rng.integers(2) else None
    without = {app: bound() for app in range(instance.num_apps) if rng.integers(3) == 0}
    return AuctionProof(welfare=bound(), without=without, others=others, counts_others=bool(rng.integers(2)))
