"""Names that policies go by in logs, and what the keys beside them tell of these."""

from collections.abc import Sequence

from optim.core.user_code import is_file_reference

NAMES = """
    allox borg drf fifo finish-time-fairness gandiva gandiva-fair las max-min mesos oasis omega optimus random slaq srsf srtf
    static tetris themis themis-greedy tiresias tiresias-gittins yarn-cs"""
SHIPPED = frozenset(NAMES.split())
"""Policies of this package. Those of a user's file or of another package call themselves what they like."""

MAX_CHARACTERS = 200


def name_error(policies: Sequence[str]) -> str:
    """Tell why texts can't be the names of a file's policies, "" if they can be."""
    for name in policies:
        if not name.isprintable() or name.strip() != name or not 0 < len(name) <= MAX_CHARACTERS:
            return f"{name[:40]!r} is no name: one has 1 to {MAX_CHARACTERS} characters that can be printed, spaces only inside"
        if policies.count(name) > 1:
            return f"{name[:40]!r} is the name of two runs; one could not tell them apart"
    return ""


def name_in(key: str) -> str:
    """Return the name by which a policy was asked for, from the key of its run."""
    return key.rpartition(":")[0]


def agrees(policy: str, key: str) -> bool:
    """Tell whether a run of this key can be of that name: of a policy of this package, wrapped or not, it is the one asked for."""
    asked = name_in(key)
    return policy == asked or is_file_reference(asked) or asked.rpartition("+")[2] not in SHIPPED
