"""Recommendations as JSON, and as patches of Kubernetes' pods."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict

from optim.core.errors import InvalidProblemError
from optim.core.text import printable
from optim.simulation.containers.harm import SECONDS_PER_DAY
from optim.simulation.containers.recommendation import Amount, Recommendation, Recommender, RecommendOptions

SCHEMA = "optim/recommendation/2"
"""Until 1, `past_kills_per_day` was `kills_per_day`, and there were no warnings."""
MIB_PER_GIB = 1024.0
PARTS = 3
"""Of a name namespace/pod/container."""

PLAIN = re.compile(r"[ -~]+")
"""A part of a name, of which a string of JSON is one of YAML, too: Kubernetes' own rules are much narrower."""
SHOWN = 80
"""Characters of a name that an error shows."""

KUBERNETES = ("cpu", "memory")
"""Resources that a pod can ask for, in cores and GiB."""


def as_json(found: Sequence[Recommendation], recommender: Recommender) -> str:
    """Return recommendations as one JSON object; numbers are in the resources' units."""
    document = {
        "schema": SCHEMA,
        "cycle_s": recommender.options.cycle_s,
        "promise": recommender.promise(),
        "warnings": list(recommender.warnings(found)),
        "units": {resource.name: resource.unit for resource in recommender.resources},
        "containers": [asdict(own) for own in found],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def as_yaml(found: Sequence[Recommendation], recommender: Recommender) -> str:
    """Return a patch a pod, as documents of YAML, to be looked at and applied by hand (``kubectl patch --patch-file``).

    Names of the form namespace/pod/container give all three, pod/container two; a name without a slash stands for both. CPU is rounded up
    to a thousandth of a core, memory to a MiB.

    Raises
    ------
    InvalidProblemError
        If a name has characters or parts that no name of Kubernetes has: they could be read as something else.
    """
    pods: dict[tuple[str | None, str], list[tuple[str, Recommendation]]] = {}
    for own in found:
        namespace, pod, name = _names(own.container)
        pods.setdefault((namespace, pod), []).append((name, own))
    told = (recommender.promise(), *(f"warning: {own}" for own in recommender.warnings(found)))
    lines = [f"# {printable(own)}" for own in told]
    for (namespace, pod), parts in pods.items():
        lines += ["---", "apiVersion: v1", "kind: Pod", "metadata:", f"  name: {_text(pod)}"]
        lines += [] if namespace is None else [f"  namespace: {_text(namespace)}"]
        lines += ["spec:", "  containers:"]
        for name, own in parts:
            for key, amount in own.amounts.items():
                told = (amount.reason, _expected(amount, recommender.options))
                lines += [f"  # {printable(f'{key}: {text}')}" for text in told]
            lines += [f"  - name: {_text(name)}", "    resources:"]
            lines += _resources(own.amounts)
    return "\n".join(lines) + "\n"


def _expected(amount: Amount, options: RecommendOptions) -> str:
    """Say what harm is expected, beside what was asked for."""
    if amount.expected_kills_per_day is None:
        harm, asked = (
            f"{100 * (amount.expected_throttled or 0.0):.3g} % of samples throttled",
            100 * options.requirement.throttled,
        )
        return f"expected by the forecast: {harm}; asked for on average at most {asked:.3g} %"
    most = options.requirement.kills * SECONDS_PER_DAY / options.cycle_s
    kills = f"{amount.expected_kills_per_day:.3g} kills a day, one a cycle at most"
    return f"expected by the forecast: {kills}; asked for on average at most {most:.3g}"


def _names(container: str) -> tuple[str | None, str, str]:
    parts = container.split("/")
    if len(parts) > PARTS or not all(PLAIN.fullmatch(part) for part in parts):
        raise InvalidProblemError(
            f"container {container[:SHOWN]!r} can't stand in a patch: Kubernetes has names namespace/pod/container of "
            "letters, digits, - and .; name it so, or use --format json"
        )
    if len(parts) == PARTS:
        return parts[0], parts[1], parts[2]
    return None, parts[0], parts[-1]


def _resources(amounts: dict[str, Amount]) -> list[str]:
    known = {name: amounts[name] for name in KUBERNETES if name in amounts}
    lines = ["      requests:", *(f"        {name}: {_quantity(name, own.request)}" for name, own in known.items())]
    limits = {name: own.limit for name, own in known.items() if own.limit is not None}
    return [*lines, "      limits:", *(f"        {name}: {_quantity(name, value)}" for name, value in limits.items())]


def _quantity(name: str, value: float) -> str:
    """Return an amount as Kubernetes writes it, rounded up, at least the smallest there is."""
    if name == "cpu":
        return f"{max(1, math.ceil(1000 * value - ROUNDING))}m"
    return f"{max(1, math.ceil(MIB_PER_GIB * value - ROUNDING))}Mi"


ROUNDING = 1e-6


def _text(name: str) -> str:
    """Return a plain name in quotes."""
    return json.dumps(name)
