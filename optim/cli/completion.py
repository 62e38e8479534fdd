"""What the shell offers when a name is begun: solvers, policies, suites, instances. Quick: no solver is loaded for it."""

import pkgutil
import re
from collections.abc import Callable, Iterable
from functools import partial
from importlib.resources import files

Complete = Callable[[str], list[str]]

_REGISTERED = re.compile(r"""^@register\("([^"]+)", problem="([^"]+)"\)""", re.MULTILINE)


def matching(names: Callable[[], Iterable[str]]) -> Complete:
    """Return what completes a name, or the last of several with commas."""

    def complete(incomplete: str) -> list[str]:
        done, comma, begun = incomplete.rpartition(",")
        taken = set(done.split(","))
        return [f"{done}{comma}{name}" for name in sorted(names()) if name.startswith(begun) and name not in taken]

    return complete


def registered_solvers() -> tuple[str, ...]:
    """Return the names of all solvers, read from their files: loading them takes seconds."""
    from optim.models.catalogue import problem_names

    found = set()
    for problem in problem_names():
        for path in (files("optim") / "solvers" / problem).iterdir():
            if path.name.endswith(".py"):
                found |= {name for name, _ in _REGISTERED.findall(path.read_text(encoding="utf-8"))}
    return tuple(sorted(found))


def suite_names() -> tuple[str, ...]:
    """Return the names of the suites, which are those of their files."""
    folder = files("optim") / "benchmarks" / "suites"
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules([str(folder)])))


def instance_names() -> tuple[str, ...]:
    """Return the names of the reference instances."""
    from optim.models.reference import reference_names

    return reference_names()


def problems() -> tuple[str, ...]:
    """Return the names of the problems."""
    from optim.models.catalogue import problem_names

    return problem_names()


def policies(*worlds: str) -> tuple[str, ...]:
    """Return the names of the policies of some worlds."""
    from optim.simulation.policy_names import policy_names

    return tuple(sorted({name for world in worlds for name in policy_names(world)}))


complete_solver = matching(registered_solvers)
complete_suite = matching(suite_names)
complete_instance = matching(instance_names)
complete_problem = matching(problems)
complete_problem_or_instance = matching(lambda: (*problems(), *instance_names()))


def complete_policy(*worlds: str) -> Complete:
    """Return what completes the names of the policies of some worlds."""
    return matching(partial(policies, *worlds))
