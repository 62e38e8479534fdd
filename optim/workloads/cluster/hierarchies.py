"""Hierarchies as files name them: each entry its parent."""

from collections.abc import Mapping

from optim.core.errors import InvalidProblemError


def parents_first(parent: Mapping[str, str], what: str, root: str = "") -> list[str]:
    """Return names so that each stands behind its parent; `root`, the parent of those at the top, is left out.

    Raises
    ------
    InvalidProblemError
        If some are each other's parents, or a parent isn't there; `what` they are is named.

    Examples
    --------
    >>> parents_first({"vision": "research", "research": ""}, "queue")
    ['research', 'vision']
    """
    order: dict[str, None] = {}
    for name in parent:
        chain: dict[str, None] = {}
        at = name
        while at != root and at not in order:
            if at in chain:
                raise InvalidProblemError(
                    f"{what} {at[:40]!r} is its own parent, by {' of '.join(chain)[:80]!r}; mend it"
                )
            if at not in parent:
                raise InvalidProblemError(f"{what} {at[:40]!r}, a parent, has no row of its own; add it")
            chain[at] = None
            at = parent[at]
        order.update(dict.fromkeys(reversed(chain)))
    return list(order)
