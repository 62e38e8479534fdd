"""Names of policies in logs and in the keys of runs."""

from collections.abc import Sequence

from optim.core.policies import shipped_names
from optim.core.user_code import is_file_reference

MAX_CHARACTERS = 200

OTHER_SETTINGS = " (what-if)"
"""Suffix of the name of a policy's second run, with other settings."""


def name_error(policies: Sequence[str]) -> str:
    """Return why texts can't be the policy names of a file, or "" if they are valid."""
    for name in policies:
        if not name.isprintable() or name.strip() != name or not 0 < len(name) <= MAX_CHARACTERS:
            return (
                f"{name[:40]!r} is not a valid policy name; "
                f"use 1 to {MAX_CHARACTERS} printable characters without leading or trailing spaces"
            )
        if policies.count(name) > 1:
            return f"{name[:40]!r} is the name of two runs; give each run a different name"
    return ""


def name_in(key: str) -> str:
    """Return the requested policy name from the key of a run."""
    return key.rpartition(":")[0]


def agrees(policy: str, key: str) -> bool:
    """Return whether a run with this key may have this policy name.

    A policy of this package, wrapped or not, has its requested name, followed by `OTHER_SETTINGS` in a second run. Policies
    from a user's file or another package choose their names.
    """
    asked = name_in(key)
    return (
        policy.removesuffix(OTHER_SETTINGS) == asked
        or is_file_reference(asked)
        or asked.rpartition("+")[2] not in shipped_names("cluster")
    )


def marked(policy: str, preemptions: int) -> str:
    """Return a policy's display name, with a star if it preempted jobs and so needs checkpoints."""
    return f"{policy} *" if preemptions else policy
