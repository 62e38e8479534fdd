"""Names of policies in logs, and the names in the keys of their runs."""

from collections.abc import Sequence

from optim.core.policies import shipped_names
from optim.core.user_code import is_file_reference

MAX_CHARACTERS = 200


def name_error(policies: Sequence[str]) -> str:
    """Return why texts can't be the names of a file's policies, "" if they can be."""
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
    """Return whether a run of this key may have that name.

    A policy of this package, wrapped or not, has the name that it was asked for by; policies of a user's file or of
    another package choose their names.
    """
    asked = name_in(key)
    return policy == asked or is_file_reference(asked) or asked.rpartition("+")[2] not in shipped_names("cluster")


def marked(policy: str, preemptions: int) -> str:
    """Return a policy's name for people, with a star if it stopped jobs that ran: it needs checkpoints."""
    return f"{policy} *" if preemptions else policy
