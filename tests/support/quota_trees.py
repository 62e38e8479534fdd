"""Random trees of quotas, and the admissible usage in them by linear programming."""

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog

from optim.models.cluster.quota_tree import NOT_SET, UNLIMITED, QueueRules, QuotaTree

DEFAULT_RULES = QueueRules()


def quota_tree(*rows, rules=DEFAULT_RULES, flavors=("gpu",), **more):
    """Return a tree from rows (name, parent's name or "", quota, borrowing limit, lending limit) in GPUs, None for no limit.

    What has children is a cohort, all else a queue with the `rules`.
    """
    names = [row[0] for row in rows]
    parents = {row[1] for row in rows}
    amounts = [
        np.array([[UNLIMITED if row[at] is None else row[at] * 1000] * len(flavors) for row in rows], np.int64)
        for at in (2, 3, 4)
    ]
    count = len(rows)
    columns = {
        "weight": np.ones(count),
        "priority": np.zeros(count, np.int64),
        "reclaim_after_us": np.full(count, NOT_SET),
        "preempt_after_us": np.full(count, NOT_SET),
    }
    return QuotaTree(
        names=tuple(names),
        parent=np.array([names.index(row[1]) if row[1] else -1 for row in rows]),
        is_queue=np.array([name not in parents for name in names]),
        flavors=flavors,
        nominal=amounts[0],
        borrowing=amounts[1],
        lending=amounts[2],
        covers=np.ones((count, len(flavors)), bool),
        rules=(rules,) * count,
        **(columns | more),
    )


limits = st.one_of(st.none(), st.integers(0, 6))


@st.composite
def trees(draw, rules=DEFAULT_RULES, **more):
    """Return a tree of up to three cohorts and four queues, each queue in a cohort."""
    cohorts = draw(st.integers(1, 3))
    rows = []
    for number in range(cohorts):
        parent = "" if not number else f"c{draw(st.integers(0, number - 1))}"
        rows.append([f"c{number}", parent, draw(st.integers(0, 3)), draw(limits), draw(limits)])
    used = {row[1] for row in rows}
    for number in range(draw(st.integers(1, 4))):
        cohort = f"c{draw(st.integers(0, cohorts - 1))}"
        rows.append([f"q{number}", cohort, draw(st.integers(0, 5)), draw(limits), draw(limits)])
        used.add(cohort)
    rows = [row for row in rows if row[0] in used or row[0].startswith("q")]
    return quota_tree(*map(tuple, rows), rules=rules, **more)


def _constraints(tree, flavor):
    """Return matrix and right-hand side of a tree's constraints, over each node's usage and borrowing.

    Quota is conserved at every node: the usage below, minus the quota borrowed from above, is at most the node's quota.
    The borrowed quota is at most the borrowing limit. Lent quota, which counts as negative, is at most the lending
    limit.
    """
    count = len(tree.names)
    rows, least = [], []
    for node in range(count):
        row = np.zeros(2 * count)
        row[node] = 1.0 if tree.is_queue[node] else 0.0
        for child in np.flatnonzero(tree.parent == node):
            row[count + child] = 1.0
        row[count + node] = -1.0
        rows.append(row)
        least.append(tree.nominal[node, flavor] / 1000)
    bounds = []
    for node in range(count):
        limit = [tree.lending[node, flavor], tree.borrowing[node, flavor]]
        low, high = (None if each >= UNLIMITED else each / 1000 for each in limit)
        is_root = tree.parent[node] < 0
        bounds.append((0 if is_root else None if low is None else -low, 0 if is_root else high))
    return np.array(rows), np.array(least), bounds


def most_by_programme(tree, used, queue, flavor=0):
    """Return the maximum GPUs of a queue, given the usage of the others, by a linear programme; None if even 0 is too much."""
    matrix, right, taken = _constraints(tree, flavor)
    count = len(tree.names)
    usage = [(None, None) if node == queue else (used.get(node, 0),) * 2 for node in range(count)]
    usage[queue] = (0, None)
    goal = np.zeros(2 * count)
    goal[queue] = -1.0
    found = linprog(goal, A_ub=matrix, b_ub=right, bounds=[*usage, *taken], method="highs")
    return round(-found.fun, 6) if found.status == 0 else None


def is_admitted(tree, used, flavor=0):
    """Return whether usage by queue, in GPUs, satisfies all quotas and limits, by a linear programme."""
    matrix, right, taken = _constraints(tree, flavor)
    usage = [(used.get(node, 0),) * 2 for node in range(len(tree.names))]
    found = linprog(np.zeros(matrix.shape[1]), A_ub=matrix, b_ub=right, bounds=[*usage, *taken], method="highs")
    return found.status == 0


def fits_below(tree, root, used, queue):
    """Return whether an isolated subtree has the quota for the usage of its queues, in GPUs, without its lent quota.

    Limits on borrowing along the path from the queue to the root don't count, because the question is about ownership
    of the quota.
    """
    below = [node for node in range(len(tree.names)) if root in tree.path(node)]
    path = tree.path(queue)
    rows = []
    for node in below:
        parent = "" if node == root else tree.names[int(tree.parent[node])]
        limits = [
            None if each[node, 0] >= UNLIMITED else int(each[node, 0]) // 1000
            for each in (tree.borrowing, tree.lending)
        ]
        rows.append(
            (
                tree.names[node],
                parent,
                int(tree.nominal[node, 0]) // 1000,
                None if node in path else limits[0],
                limits[1],
            )
        )
    cut = quota_tree(*rows)
    usage = {cut.names.index(tree.names[node]): used.get(node, 0) for node in below if tree.is_queue[node]}
    return is_admitted(cut, usage)
