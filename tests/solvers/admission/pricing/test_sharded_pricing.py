"""Pricing by a worker pool: the same schedules, payoffs and bound as in one process, for every assignment of shards."""

import os
import pickle
import signal
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.core.errors import InvalidOptionError
from optim.execution import load_dask
from optim.execution.tasks import ThreadCrew
from optim.models.reference import reference_instance
from optim.solvers.admission.cuts.cut_table import CutTable
from optim.solvers.admission.packing.capacity_rows import CapacityRows, total_use
from optim.solvers.admission.packing.column_pool import ColumnPool
from optim.solvers.admission.packing.subgradient import PriceSearch
from optim.solvers.admission.pricing.classes import JobTables, price
from optim.solvers.admission.pricing.sharded_pricing import CrewPricer, JobShards

SHARDS = 5
"""Of sixteen jobs."""


class Apart:
    """A worker pool whose workers are pickled copies; each call may go to another one."""

    def __init__(self, post, num_workers, seed):
        self.workers = [pickle.loads(pickle.dumps(post)) for _ in range(num_workers)]
        self.rng = np.random.default_rng(seed)

    def ask(self, question, own):
        chosen = {shard: self.workers[self.rng.integers(len(self.workers))] for shard in own}
        return {shard: chosen[shard].answer(shard, question, what) for shard, what in own.items()}


@pytest.fixture(scope="module")
def small():
    instance = reference_instance("small-0")
    tables = JobTables.build(instance)
    return instance, tables, CapacityRows.of(tables)


@given(seed=st.integers(0, 2**32 - 1), num_workers=st.integers(1, 4))
def test_shards_together_give_what_one_process_gives(small, seed, num_workers):
    instance, tables, rows = small
    rng = np.random.default_rng(seed)
    point = rng.exponential(rng.choice([0.001, 0.1, 1.0]), rows.num_rows)
    pricer = CrewPricer(Apart(JobShards(instance, SHARDS), num_workers, seed), tables, SHARDS)
    payoff, use, keys = pricer.price(point)
    expected = price(tables, rows.prices(point))
    np.testing.assert_allclose(payoff, expected.payoff, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(use, total_use(tables, rows, expected), rtol=1e-12, atol=1e-12)
    served = np.flatnonzero(expected.completion >= 0)
    assert [k for k, key in enumerate(keys) if key is not None] == served.tolist()
    wanted = rng.permutation(served)[: rng.integers(0, len(served) + 1)]
    columns = pricer.columns(point, np.sort(wanted))
    same = expected.select(np.sort(wanted))
    for name in ("jobs", "completion", "workers", "ps"):
        np.testing.assert_array_equal(getattr(columns, name), getattr(same, name))


def test_columns_get_the_keys_that_workers_told(small):
    instance, tables, rows = small
    point = np.full(rows.num_rows, 1e-3)
    pricer = CrewPricer(Apart(JobShards(instance, SHARDS), 2, 0), tables, SHARDS)
    pool = ColumnPool(tables, rows)
    search = PriceSearch(tables, rows, pool, CutTable(instance))
    search.pricer = pricer
    first = search._evaluate(point)
    assert first.num_new == len(pool) > 0
    _, _, keys = pricer.price(point)
    assert sorted(pool.key(k) for k in range(len(pool))) == sorted(key for key in keys if key is not None)
    # Asked again, no column is new, and none travels.
    pricer.columns = None
    assert search._evaluate(point).num_new == 0


def test_any_number_of_workers_proves_the_same_bound(small, monkeypatch):
    instance, _, _ = small
    monkeypatch.setattr(JobShards, "of", lambda instance: JobShards(instance, SHARDS))
    here = optim.solve(instance, "column-generation")
    bounds = []
    for num_workers in (1, 3):
        monkeypatch.setattr("optim.execution.tasks.ThreadCrew", lambda post, n=num_workers: Entered(post, n))
        solution = optim.solve(instance, "column-generation", options={"engine": "threads"})
        assert optim.verify(instance, solution).is_ok
        bounds.append(solution.bound)
    assert bounds[0] == bounds[1]
    assert bounds[0] == pytest.approx(here.bound, rel=2e-6)


class Entered(Apart):
    """A worker pool that is a context manager."""

    def __init__(self, post, num_workers):
        super().__init__(post, num_workers, 0)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


def test_threads_share_the_tables_that_are_there_and_no_message_carries_them(small):
    instance, tables, rows = small
    post = JobShards.of(instance).laid_out(tables, rows)
    assert post.tables is tables
    assert post.rows is rows
    assert not {"tables", "rows"} & set(vars(pickle.loads(pickle.dumps(post))))


def test_threads_give_the_answers_of_their_shards_in_order(small):
    instance, tables, rows = small
    with ThreadCrew(JobShards(instance, SHARDS), 3) as crew:
        payoff, _, _ = CrewPricer(crew, tables, SHARDS).price(np.zeros(rows.num_rows))
    np.testing.assert_allclose(payoff, price(tables, rows.prices(np.zeros(rows.num_rows))).payoff, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"engine": "nobody"}, "engine must be 'auto', 'here'"),
    ],
)
def test_engines_that_do_not_exist_are_refused(small, options, line):
    with pytest.raises(InvalidOptionError, match=line):
        optim.solve(small[0], "column-generation", options=options)


@pytest.mark.prove
def test_a_worker_that_is_lost_in_the_middle_changes_nothing(small):
    pytest.importorskip("distributed")
    instance, tables, rows = small
    with load_dask().dask_cluster(num_processes=2) as engine, engine.crew(JobShards(instance, SHARDS)) as crew:
        pricer = CrewPricer(crew, tables, SHARDS)
        keepers = list(engine.client.cluster.workers.values())
        for number in range(12):
            point = np.full(rows.num_rows, 1e-4 * number)
            if number % 4 == 1:
                threading.Timer(0.002 * number, os.kill, (keepers[number % 2].pid, signal.SIGKILL)).start()
            payoff, _, keys = pricer.price(point)
            expected = price(tables, rows.prices(point))
            np.testing.assert_allclose(payoff, expected.payoff, rtol=1e-12)
            served = np.flatnonzero([key is not None for key in keys])
            np.testing.assert_array_equal(pricer.columns(point, served).workers, expected.select(served).workers)


@pytest.mark.parametrize(("jobs", "shards"), [(0, 1), (16, 1), (120, 2), (1000, 16), (10_000, 16)])
def test_the_number_of_shards_is_the_instances(jobs, shards):
    assert JobShards.of(SimpleNamespace(num_jobs=jobs)).num_shards == shards
