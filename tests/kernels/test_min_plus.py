"""The batched kernel against plain recursions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.kernels import min_plus
from optim.kernels.min_plus import at_once, best_payoffs, by_count, in_one_launch

slot_tables = jax.jit(min_plus.slot_tables)  # at once instead of operation by operation


@pytest.mark.parametrize(("slots", "counts", "valued"), [(0, 3, 0), (4, 0, 4), (4, 3, 5)])
def test_tables_without_slots_or_counts_are_refused(slots, counts, valued):
    with pytest.raises(InvalidOptionError, match=r"tables must have shape \(jobs, slots, largest Y \+ 1\)"):
        best_payoffs(jnp.zeros((2, slots, counts)), jnp.ones((2, valued)), jnp.ones(2, jnp.int32), 3)


def plain_table(worker_cost, worker_limit, ps_cost, ps_limit, needed):
    """Cost of Y workers and their PSs, by writing out and sorting every unit."""
    workers = sorted(cost for cost, limit in zip(worker_cost, worker_limit, strict=True) for _ in range(limit))
    servers = sorted(cost for cost, limit in zip(ps_cost, ps_limit, strict=True) for _ in range(limit))
    table = []
    for y, due in enumerate(needed):
        is_possible = 0 <= due <= min(y, len(servers)) and y <= len(workers)
        table.append(sum(workers[:y]) + sum(servers[:due]) if is_possible else np.inf)
    return table


def plain_best(tables, value, target):
    """Best payoff by a dictionary of reachable states."""
    reached, best, completion = {0: 0.0}, 0.0, -1
    for t, table in enumerate(tables):
        after = {}
        for done, cost in reached.items():
            for y, extra in enumerate(table):
                state = done + y
                if np.isfinite(extra) and state <= target:
                    after[state] = min(after.get(state, np.inf), cost + extra)
        reached = after
        if target in reached and value[t] - reached[target] > best:
            best, completion = value[t] - reached[target], t
    return best, completion


@pytest.mark.parametrize("seed", range(20))
def test_slot_tables_and_payoffs_equal_plain_recursions(seed):
    rng = np.random.default_rng(seed)
    jobs, slots, classes, largest = 5, 6, 3, 4
    worker_cost, ps_cost = rng.random((2, jobs, slots, classes))
    worker_limit, ps_limit = rng.integers(0, 3, (2, jobs, slots, classes))
    needed = np.cumsum(rng.integers(0, 2, (jobs, largest + 1)), axis=1)
    needed[:, 0] = 0
    needed[rng.random(jobs) < 0.3, largest:] = -1
    target = rng.integers(1, 9, jobs)
    target[rng.integers(jobs)] = 8  # the most, for which everything is compiled
    value = np.sort(rng.random((jobs, slots)) * 8, axis=1)[:, ::-1].copy()
    with jax.enable_x64(True):
        tables = slot_tables(*map(jnp.asarray, (worker_cost, worker_limit, ps_cost, ps_limit, needed)))
        best, completion = best_payoffs(tables, jnp.asarray(value), jnp.asarray(target), int(target.max()))
    for i in range(jobs):
        expected = [
            plain_table(worker_cost[i, t], worker_limit[i, t], ps_cost[i, t], ps_limit[i, t], needed[i])
            for t in range(slots)
        ]
        np.testing.assert_allclose(np.asarray(tables)[i], expected, rtol=1e-12)
        payoff, slot = plain_best(expected, value[i], target[i])
        assert float(best[i]) == pytest.approx(payoff, abs=1e-12)
        assert int(completion[i]) == slot


def test_all_counts_at_once_are_one_after_the_other():
    rng = np.random.default_rng(3)
    for jobs, width, largest in ((4, 9, 3), (2, 2, 6)):
        state, table = rng.random((jobs, width + 1)), rng.random((jobs, largest + 1))
        state[rng.random(state.shape) < 0.3] = np.inf
        table[rng.random(table.shape) < 0.3] = np.inf
        arrays = jnp.asarray(state, jnp.float32), jnp.asarray(table, jnp.float32)
        one, other = (jax.jit(step)(*arrays) for step in (by_count, at_once))
        assert np.array_equal(one, other)
        known = [
            [
                min((state[i, d - y] + table[i, y] for y in range(min(d, largest) + 1)), default=np.inf)
                for d in range(width + 1)
            ]
            for i in range(jobs)
        ]
        np.testing.assert_allclose(np.asarray(other), known, rtol=1e-6)


def test_of_equal_payoffs_the_first_slot_completes_and_none_is_worth_nothing():
    tables = jnp.asarray([[[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]] * 2, jnp.float32)
    value = jnp.asarray([[2.0, 3.0, 3.0], [1.0, 0.5, 0.0]], jnp.float32)
    target = jnp.asarray([1, 1])
    for best, completion in (
        best_payoffs(tables, value, target, 1),
        in_one_launch(tables, value, target, width=1, interpret=True),
    ):
        assert best.tolist() == [2.0, 0.0]
        assert completion.tolist() == [1, -1]


def drawn(seed, jobs, slots, counts, width):
    """Tables with many infinite entries, values and targets, float32."""
    rng = np.random.default_rng(seed)
    tables = np.cumsum(rng.random((jobs, slots, counts)), axis=2).astype(np.float32)
    tables[rng.random(tables.shape) < 0.2] = np.inf
    tables[rng.random((jobs, slots)) < 0.3] = [0.0, *[np.inf] * (counts - 1)]  # no operation is possible there
    value = (slots * counts * (rng.random((jobs, slots)) - 0.2)).astype(np.float32)
    target = rng.integers(1, width + 1, jobs).astype(np.int32)
    target[0] = width
    return jnp.asarray(tables), jnp.asarray(value), jnp.asarray(target)


MORE_SHAPES = (
    pytest.param(shape, marks=pytest.mark.prove) for shape in ((4, 6, 3, 5), (2, 5, 2, 4), (3, 150, 9, 1100))
)


@pytest.mark.parametrize("shape", [(3, 9, 11, 40), *MORE_SHAPES])
def test_one_launch_gives_what_plain_recursions_give(shape):
    tables, value, target = drawn(7, *shape)
    run = jax.jit(in_one_launch, static_argnames=("width", "interpret"))
    best, completion = run(tables, value, target, width=shape[-1], interpret=True)
    known = [plain_best(*map(np.asarray, (tables[i], value[i])), int(target[i])) for i in range(shape[0])]
    np.testing.assert_allclose(best, [payoff for payoff, _ in known], rtol=1e-5, atol=1e-5)
    assert completion.tolist() == [slot for _, slot in known]
    assert shape[0] < 3 or np.count_nonzero(completion >= 0) > 0
    assert np.array_equal(best, best_payoffs(tables, value, target, shape[-1])[0]), "the reference's bits"


def test_prices_of_all_jobs_are_one_launch():
    tables, value, target = drawn(7, 3, 4, 3, 5)
    text = str(jax.make_jaxpr(lambda *given: in_one_launch(*given, width=5, interpret=True))(tables, value, target))
    assert text.count("pallas_call[") == 1
