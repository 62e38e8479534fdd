"""Hierarchies in files that name each entry's parent."""

from collections.abc import Mapping

from optim.core.errors import InvalidProblemError


def parents_first(parent: Mapping[str, str], what: str, root: str = "") -> list[str]:
    """Return names with each parent before its children; `root`, the parent of top-level entries, is left out.

    Raises
    ------
    InvalidProblemError
        If parents form a cycle, or a parent is missing; the message calls the entries `what`.

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
                    f"{what} {at[:40]!r} is an ancestor of itself, by {' of '.join(chain)[:80]!r}; remove the cycle"
                )
            if at not in parent:
                raise InvalidProblemError(f"{what} {at[:40]!r} is a parent but has no row; add a row for it")
            chain[at] = None
            at = parent[at]
        order.update(dict.fromkeys(reversed(chain)))
    return list(order)
