"""Cluster policies by name, with their options: registered policies, wrappers around them, and user policies."""

import inspect
from collections.abc import Mapping
from typing import Any

from optim.core.errors import InvalidOptionError, unknown_name
from optim.core.options import build_options
from optim.core.policies import PLUGIN_GROUPS, NoOptions, find_policy, policy_names, shipped_names
from optim.core.user_code import is_file_reference, load_class_from_file, load_installed
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.engine import Policy
from optim.simulation.cluster.planning.index_adapter import IndexPolicyAdapter
from optim.simulation.cluster.planning.policy import PlanningPolicy

WORLD, WRAPPERS = "cluster", "wrappers"

WHAT = "a policy of simulate cluster"


def wrap(name: str, policy: Policy, jobs: Workload, options: Mapping[str, Any] | None = None) -> PlanningPolicy:
    """Return a policy inside the named wrapper.

    Raises
    ------
    InvalidOptionError
        If the wrapper or one of its options is unknown.
    """
    entry = find_policy(WRAPPERS, name)
    if entry is None:
        raise unknown_name("wrapper", name, shipped_names(WRAPPERS))
    inner = policy if isinstance(policy, PlanningPolicy) else IndexPolicyAdapter(policy, jobs)
    made: PlanningPolicy = entry.make(build_options(entry.options_type, options), inner, jobs)
    return made


def make_policy(name: str, jobs: Workload, options: Mapping[str, Any] | None = None) -> Policy:
    """Return a policy by registered name, file (``./mine.py:MyPolicy``), or entry point (group `optim.policies`).

    ``WRAPPER+NAME`` puts a wrapper around the policy; of several wrappers, the innermost is the last. The options of a wrapper
    are named ``WRAPPER.NAME``. A user's class must derive from `PlanningPolicy`. It is constructed without arguments, or with
    its options if it has a dataclass `Options`, and also with the workload if it takes a second argument.

    Raises
    ------
    InvalidOptionError
        If the policy or one of its options is unknown.
    """
    around, _, inner = name.rpartition("+") if not is_file_reference(name.split("+", maxsplit=1)[0]) else ("", "", name)
    if around:
        given = dict(options or {})
        of_wrappers = {key: given.pop(key) for key in list(given) if "." in key}
        policy = make_policy(inner, jobs, given)
        for wrapper in reversed(around.split("+")):
            chosen = {
                key.partition(".")[2]: value for key, value in of_wrappers.items() if key.startswith(f"{wrapper}.")
            }
            policy = wrap(wrapper, policy, jobs, chosen)
        return policy
    entry = None if is_file_reference(name) else find_policy(WORLD, name)
    if entry is not None:
        made: Policy = entry.make(build_options(entry.options_type, options), jobs)
        return made
    return _make_user_policy(_user_class(name, policy_names(WORLD)), name, jobs, options)


def options_of(name: str) -> type[Any]:
    """Return the options class of a policy, without its wrappers, or of a wrapper.

    Raises
    ------
    InvalidOptionError
        If the name is unknown.
    """
    inner = name if is_file_reference(name) else name.rpartition("+")[2]
    entry = None if is_file_reference(inner) else find_policy(WORLD, inner) or find_policy(WRAPPERS, inner)
    if entry is not None:
        return entry.options_type
    found = _user_class(inner, (*policy_names(WORLD), *shipped_names(WRAPPERS)))
    return getattr(found, "Options", NoOptions)


def label(name: str) -> str:
    """Return the prefix of a policy's options: its name without wrappers, or the class name for a user's file."""
    return name.rpartition(":")[2] if is_file_reference(name) else name.rpartition("+")[2]


def own_file(name: str) -> str | None:
    """Return the file of a user's policy, with or without wrappers; None for other policies."""
    inner = name if is_file_reference(name.split("+", maxsplit=1)[0]) else name.rpartition("+")[2]
    return inner.rpartition(":")[0] if is_file_reference(inner) else None


FAMILIES = {
    "backfill": "for backfilling use easy, conservative, or --option backfill=true",
    "sjf": "for shortest job first use srtf",
    "kueue": "for the rules of Kueue use hierarchical-quota",
    "slurm": "for the rules of Slurm use multifactor",
}
"""Hints for unknown policy names that begin with the key."""


def _user_class(name: str, known: tuple[str, ...]) -> type[PlanningPolicy]:
    """Return the class in a user's file or in another package."""
    found = load_class_from_file(name, PlanningPolicy, WHAT) if is_file_reference(name) else None
    found = found or load_installed(PLUGIN_GROUPS[WORLD], name, PlanningPolicy, WHAT)
    if found is None:
        families = [family for word, family in FAMILIES.items() if name.casefold().startswith(word)]
        meant = f", or ./mine.py:MyPolicy{'; ' if families else ''}{''.join(families)}"
        raise unknown_name("policy", name, sorted(known), meant)
    return found


def _make_user_policy(
    found: type[PlanningPolicy], name: str, jobs: Workload, options: Mapping[str, Any] | None
) -> Policy:
    chosen = build_options(getattr(found, "Options", NoOptions), options)
    arguments = [chosen, jobs] if hasattr(found, "Options") else [jobs]
    try:
        count = len(inspect.signature(found).parameters)
        policy = found(*arguments[:count])
    except Exception as error:  # user code may raise any exception
        raise InvalidOptionError(f"cannot construct {name[:80]} ({type(error).__name__}: {error})") from error
    if not policy.name:
        found.name = found.__name__
    return policy
