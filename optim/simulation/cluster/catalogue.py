"""Policies by name, with their options: index policies, planning policies, wrappers around them, and one's own."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optim.core.errors import InvalidOptionError
from optim.core.optional import installed_names
from optim.core.options import build_options
from optim.core.user_code import is_file_reference, load_class_from_file, load_installed
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.engine import Policy
from optim.simulation.cluster.planning.index_adapter import IndexPolicyAdapter
from optim.simulation.cluster.planning.policy import PlanningPolicy
from optim.simulation.cluster.policies.allox import Allox, AlloxOptions
from optim.simulation.cluster.policies.borg import Borg, BorgOptions
from optim.simulation.cluster.policies.drf import Drf, DrfOptions
from optim.simulation.cluster.policies.gandiva import Gandiva, GandivaOptions
from optim.simulation.cluster.policies.gandiva_fair import GandivaFair, GandivaFairOptions
from optim.simulation.cluster.policies.mesos import Mesos, MesosOptions
from optim.simulation.cluster.policies.oasis import Oasis, OasisOptions
from optim.simulation.cluster.policies.omega import Omega, OmegaOptions
from optim.simulation.cluster.policies.optimus import Optimus
from optim.simulation.cluster.policies.orders import (
    FifoOptions,
    LasOptions,
    RandomOptions,
    ShortestOptions,
    fifo,
    las,
    random_order,
    srsf,
    srtf,
)
from optim.simulation.cluster.policies.slaq import Slaq, SlaqOptions
from optim.simulation.cluster.policies.static import Static, StaticOptions
from optim.simulation.cluster.policies.tetris import Tetris, TetrisOptions
from optim.simulation.cluster.policies.themis.leases import LeaseOptions, Themis, ThemisGreedy, ThemisOptions
from optim.simulation.cluster.policies.time_shares import FinishTimeFairness, MaxMin, RoundOptions
from optim.simulation.cluster.policies.tiresias import GittinsOptions, TiresiasOptions, gittins, tiresias
from optim.simulation.cluster.policies.yarn_cs import YarnCs, YarnOptions
from optim.simulation.cluster.wrappers import (
    FailEarly,
    FailEarlyOptions,
    Isolate,
    IsolateOptions,
    Patience,
    PatienceOptions,
    StopAtGain,
    StopAtGainOptions,
)
from optim.simulation.policy_names import CLUSTER_PLUGINS

WHAT = "a policy of simulate cluster"

INDEX_POLICIES: Mapping[str, tuple[type[Any], Callable[[Any, Workload], Policy]]] = {
    "fifo": (FifoOptions, fifo),
    "las": (LasOptions, las),
    "random": (RandomOptions, random_order),
    "srsf": (ShortestOptions, srsf),
    "srtf": (ShortestOptions, srtf),
    "tiresias": (TiresiasOptions, tiresias),
    "tiresias-gittins": (GittinsOptions, gittins),
}
"""Compiled: those that are played where no policy is named."""

PLANNING_POLICIES: Mapping[str, tuple[type[Any], Callable[[Any, Workload], Policy]]] = {
    "allox": (AlloxOptions, Allox),
    "borg": (BorgOptions, Borg),
    "drf": (DrfOptions, Drf),
    "finish-time-fairness": (RoundOptions, FinishTimeFairness),
    "gandiva": (GandivaOptions, Gandiva),
    "gandiva-fair": (GandivaFairOptions, GandivaFair),
    "max-min": (RoundOptions, MaxMin),
    "mesos": (MesosOptions, Mesos),
    "oasis": (OasisOptions, Oasis),
    "omega": (OmegaOptions, Omega),
    "optimus": (SlaqOptions, Optimus),
    "slaq": (SlaqOptions, Slaq),
    "static": (StaticOptions, Static),
    "tetris": (TetrisOptions, Tetris),
    "themis": (ThemisOptions, Themis),
    "themis-greedy": (LeaseOptions, ThemisGreedy),
    "yarn-cs": (YarnOptions, YarnCs),
}

POLICIES = {**INDEX_POLICIES, **PLANNING_POLICIES}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """Options of a policy that has none."""


WRAPPERS: Mapping[str, tuple[type[Any], Callable[[Any, PlanningPolicy, Workload], PlanningPolicy]]] = {
    "fail-early": (FailEarlyOptions, FailEarly),
    "isolate": (IsolateOptions, Isolate),
    "patience": (PatienceOptions, Patience),
    "stop-at-gain": (StopAtGainOptions, StopAtGain),
}
"""Around any policy; an index policy within is played by planning."""


def wrap(name: str, policy: Policy, jobs: Workload, options: Mapping[str, Any] | None = None) -> PlanningPolicy:
    """Return a policy with a wrapper around it.

    Raises
    ------
    InvalidOptionError
        If there is no wrapper of that name, or an option isn't one of its.
    """
    if name not in WRAPPERS:
        raise InvalidOptionError(f"unknown wrapper {name[:40]!r}; there are: {', '.join(WRAPPERS)}")
    options_type, build = WRAPPERS[name]
    inner = policy if isinstance(policy, PlanningPolicy) else IndexPolicyAdapter(policy, jobs)
    return build(build_options(options_type, options), inner, jobs)


def make_policy(name: str, jobs: Workload, options: Mapping[str, Any] | None = None) -> Policy:
    """Return a policy by its name, of a file (``./mine.py:MyPolicy``), or of another package (entry points `optim.policies`).

    ``WRAPPER+NAME`` puts wrappers around it, the last one nearest; their options are named ``WRAPPER.NAME``. A class of one's own
    derives from `PlanningPolicy`. It is made without arguments, or with its options if it has a
    dataclass `Options`, and the workload if it takes a second argument.

    Raises
    ------
    InvalidOptionError
        If there is no policy of that name, or an option isn't one of its.
    """
    around, _, inner = name.rpartition("+") if not is_file_reference(name.split("+", maxsplit=1)[0]) else ("", "", name)
    if around:
        given = dict(options or {})
        own = {key: given.pop(key) for key in list(given) if "." in key}
        policy = make_policy(inner, jobs, given)
        for each in reversed(around.split("+")):
            mine = {key.partition(".")[2]: value for key, value in own.items() if key.startswith(f"{each}.")}
            policy = wrap(each, policy, jobs, mine)
        return policy
    if name in POLICIES:
        options_type, build = POLICIES[name]
        return build(build_options(options_type, options), jobs)
    found = load_class_from_file(name, PlanningPolicy, WHAT) if is_file_reference(name) else None
    found = found or load_installed(CLUSTER_PLUGINS, name, PlanningPolicy, WHAT)
    if found is None:
        known = ", ".join(sorted({*POLICIES, *installed_names(CLUSTER_PLUGINS)}))
        raise InvalidOptionError(f"unknown policy {name[:40]!r}; there are: {known}, or ./mine.py:MyPolicy")
    return _make_own(found, name, jobs, options)


def options_of(name: str) -> type[Any]:
    """Return the options of a policy, without the wrappers around it, or of a wrapper.

    Raises
    ------
    InvalidOptionError
        If there is none of that name.
    """
    inner = name if is_file_reference(name) else name.rpartition("+")[2]
    if inner in POLICIES or inner in WRAPPERS:
        options_type: type[Any] = {**POLICIES, **WRAPPERS}[inner][0]
        return options_type
    found = load_class_from_file(inner, PlanningPolicy, WHAT) if is_file_reference(inner) else None
    found = found or load_installed(CLUSTER_PLUGINS, inner, PlanningPolicy, WHAT)
    if found is None:
        known = ", ".join(sorted({*POLICIES, *WRAPPERS, *installed_names(CLUSTER_PLUGINS)}))
        raise InvalidOptionError(f"unknown policy {inner[:40]!r}; there are: {known}, or ./mine.py:MyPolicy")
    return getattr(found, "Options", NoOptions)


def label(name: str) -> str:
    """Return what options call a policy: of one's own file its class, and without the wrappers around it."""
    return name.rpartition(":")[2] if is_file_reference(name) else name.rpartition("+")[2]


def own_file(name: str) -> str | None:
    """Return the file of a policy of one's own, wrapped or not; None for others."""
    inner = name if is_file_reference(name.split("+", maxsplit=1)[0]) else name.rpartition("+")[2]
    return inner.rpartition(":")[0] if is_file_reference(inner) else None


def _make_own(found: type[PlanningPolicy], name: str, jobs: Workload, options: Mapping[str, Any] | None) -> Policy:
    own = build_options(getattr(found, "Options", NoOptions), options)
    wanted = [own, jobs] if hasattr(found, "Options") else [jobs]
    try:
        count = len(inspect.signature(found).parameters)
        policy = found(*wanted[:count])
    except Exception as error:  # somebody else's code may fail in any way
        raise InvalidOptionError(f"{name[:80]} can't be made ({type(error).__name__}: {error})") from error
    if not policy.name:
        found.name = found.__name__
    return policy
