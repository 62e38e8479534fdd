"""A small logged run of policies with and without single GPUs, utility and keys, and variants with one change each."""

import json

import numpy as np

from optim.core.archives import read_arrays
from optim.core.errors import InvalidProblemError
from optim.models.cluster.check import check_runs
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.run_file import FIRST_SCHEMA, RunRecord, load_run, save_run
from optim.models.cluster.workload import US
from optim.simulation.cluster.comparison import Comparison, PolicyRequest, bound
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import workload

NOWHERE = object()
MARK = "here"


def write_run(path):
    """Write a run of two policies."""
    rows = [(0, 1, 300), (5, 2, 200), (9, 1, 50), (20, 2, 900)]
    loss = np.linspace(2, 1, 5)[None, :].repeat(len(rows), axis=0)
    jobs = workload(rows, app=np.array([0, 0, 1, 1]), group=np.array([0, 1, 0, 1]), groups=("a", "b"), loss=loss)
    cluster, options = Cluster.grid("2x2"), EngineOptions()
    task = Comparison(jobs, cluster, options, 0)
    requests = [PolicyRequest(name=name) for name in ("srtf", "oasis")]
    task.check(requests)
    record = RunRecord(
        jobs=jobs,
        cluster=cluster,
        overhead_us=options.overhead_us,
        settings={"seed": 0, "keys": [task.key(request) for request in requests]},
        runs=tuple(task.measured("", _played(task, request)).logged for request in requests),
        **bound(jobs, cluster, 5),
    )
    save_run(record, path)


def _played(task, request):
    from optim.simulation.cluster.engine import simulate

    return simulate(task.jobs, task.cluster, request.build(task.jobs), task.options, task.seed)


def verdict(path, arrays):
    """Return the message for a file of these arrays: "" if it is accepted, else the cause of the rejection."""
    np.savez(path, **arrays)  # waits for no disk
    try:
        found = check_runs(load_run(path))
    except InvalidProblemError as error:
        return str(error)
    return "; ".join(str(problem) for _, one in found for problem in one.violations)


def arrays_of(path):
    """Return a file's arrays, and its header."""
    arrays = read_arrays(path, "a run", "")
    return arrays, json.loads(bytes(arrays["header"]))


def of_the_first_schema(arrays, header):
    """Return a file's arrays as the first schema had them: of an index policy, prices over slots of one length."""
    header = {**header, "schema": FIRST_SCHEMA, "settings": {}, "slot_us": 50 * US}
    for name in ("policies", "metrics", "rules", "figures", "worth"):
        header[name] = header[name][:1]
    kept = {name: values for name, values in arrays.items() if not name.startswith(("log1", "worth1", "price_end"))}
    return {**kept, "price": np.full(20, 1e-9)}, {**header, "bounds": {"jct_mean_h": 1e-3}}


def with_header(arrays, text):
    """Return the arrays with another header."""
    return {**arrays, "header": np.frombuffer(text.encode(), np.uint8)}


def leaves(value, path=()):
    """Yield the path of every value in a document, including containers."""
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        yield from leaves(child, (*path, name))


def changed(value, path, other=NOWHERE):
    """Return the document with another value at a path, or with none."""
    first, *rest = path
    at = dict(value) if isinstance(value, dict) else list(value)
    if rest:
        at[first] = changed(at[first], rest, other)
    elif other is NOWHERE:
        del at[first]
    else:
        at[first] = other
    return at


def given_twice(value, path):
    """Return the document's text with one field repeated; the last part of the path names it."""
    *above, name = path
    at = value
    for each in above:
        at = at[each]
    said = f"{json.dumps(name)}: {json.dumps(at[name])}"
    marked = json.dumps(changed(value, path, MARK))
    return marked.replace(f'{json.dumps(name)}: "{MARK}"', f"{said}, {said}")
