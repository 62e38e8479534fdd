"""Every message of elastic runs under random storms, and the books that controllers keep, come out as they were kept.

Gradients are whole numbers, so that the numbers in messages are the same on every processor, to the last bit.
"""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from optim.kernels.parameter_server import Adagrad, Sgd
from optim.training.applications import MatrixFactorisation, TopicModel
from optim.training.checkpoints import DurableStorage, StartingPoint, read_checkpoint, write_checkpoint
from optim.training.controller import Membership, NonFinitePushes, ReplicaCatalog
from optim.training.dataflow import PushLog
from optim.training.machine import ShardCopies, check_gradient, check_rows, compute
from optim.training.messages import (
    Compute,
    Delta,
    NonFinite,
    Push,
    Pushed,
    Pushes,
    ShardValues,
    StoreBackup,
)
from optim.training.processes import HeartbeatMonitor, MemoryPlan
from optim.training.server import is_by_rows, padded
from optim.training.stages import (
    STORAGE,
    ClusterOptions,
    Fixed,
    Stage,
    Thresholds,
    ThroughputModel,
    assign_balanced,
    assign_roles,
    bounds,
    shard_bounds,
)
from optim.training.trainer import Trainer, resumable
from tests.support import kept
from tests.support.kept import assert_kept, digest, outcome
from tests.support.training.oracle import CountingApplication
from tests.support.training.storms import random_events
from tests.support.training.told import Writing

KEPT = Path(__file__).parent / "kept"
CLOCKS = 9
MODEL = ThroughputModel(
    work_s=40.0, worker_mb=30.0, model_mb=120.0, bandwidth_mb_per_s=100.0, sync_every=3, max_actives=5
)
RUNS = {
    "plain": {"num_shards": 1},
    "shards": {"num_shards": 2, "checkpoint_every": 3, "sync_every": 1, "policy": Thresholds(second=0.5, third=2.0)},
    "late": {"num_shards": 2, "staleness": 2, "max_actives": 1, "policy": Thresholds(second=0.0, third=9.0)},
    "replayed": {"num_shards": 2, "replay_mb": 1.0, "policy": Fixed(fixed=Stage.BACKED_UP)},
    "little room": {"num_shards": 2, "replay_mb": 0.0004, "policy": Fixed(fixed=Stage.TRANSIENT), "sync_every": 3},
    "traditional": {"num_shards": 2, "checkpoint_every": 2, "policy": Fixed(fixed=Stage.TRADITIONAL)},
    "separate": {"num_shards": 1, "policy": Fixed(fixed=Stage.SEPARATE), "replay_mb": 1.0},
    "model": {"num_shards": 2, "policy": MODEL},
}


def told(trainer, record):
    """Return a run in few numbers."""
    controller = trainer.controller
    stages = " ".join(f"{row.clock}:{row.stage}:{row.reliable}+{row.transient}" for row in record.rows)
    back = [(one.from_clock, one.to_clock, one.replayed_to) for one in record.rollbacks]
    return {
        "messages": [len(trainer.transport.log), digest(trainer.transport.log)],
        "stages": stages,
        "rollbacks": str(back),
        "computed": [record.num_computed, record.num_skipped, controller.generation, controller.saved_clock],
        "losses": list(record.losses),
        "parameters": digest(record.parameters.view(np.int32)),
        "layout": " ".join([*controller.roles.workers, "|", *controller.roles.servers, "|", *controller.roles.backups]),
        "owners": " ".join(controller.owners),
        "machines": " ".join([*controller.machines.staying, "|", *controller.machines.leaving]),
    }


@pytest.mark.prove
@pytest.mark.parametrize("name", RUNS)
def test_all_messages_of_a_storm_are_those_of_before(name):
    found = {}
    for seed in range(6):
        application = CountingApplication(4, 6)
        transport = Writing(application)
        trainer = Trainer(application, Sgd(learning_rate=1.0), ClusterOptions(**RUNS[name]), transport)
        record = outcome(trainer.run, CLOCKS, random_events(seed, CLOCKS))
        found[f"storm {seed}"] = record if isinstance(record, str) else told(trainer, record)
    assert_kept(KEPT / f"storms-{name.replace(' ', '-')}.json", found)


def test_an_interrupted_run_goes_on_from_its_checkpoints_as_before(tmp_path):
    found, options = {}, ClusterOptions(num_shards=2, checkpoint_every=2, policy=Fixed(fixed=Stage.TRADITIONAL))
    for clocks in (5, 9):
        application = CountingApplication(4, 6)
        trainer = resumable(application, Sgd(learning_rate=1.0), options, Writing(application), tmp_path)
        begun = trainer.clock
        record = trainer.run(clocks, random_events(1, clocks)[: 99 if clocks == 5 else 1])
        (tmp_path / "note").write_text("")
        names = " ".join(sorted(path.name for path in tmp_path.glob("*.npz")))
        found[str(clocks)] = [
            begun,
            len(record.losses),
            record.num_computed,
            digest(record.parameters.view(np.int32)),
            names,
        ]
    other = ClusterOptions(num_shards=2, staleness=1, policy=options.policy)
    refused = outcome(resumable, application, Sgd(learning_rate=1.0), other, Writing(application), tmp_path)
    found["another job"] = str(refused).replace(str(tmp_path), "")
    point = StartingPoint(
        clock=3, parameters=np.arange(5, dtype=np.float32), slots=(np.ones(5, np.float32),), losses=(3.0, 2.0, 1.0)
    )
    path = tmp_path / "checkpoint-0000000099.npz"
    write_checkpoint(path, point, "job")
    found["read"] = read_checkpoint(path, "job")
    path.write_bytes(path.read_bytes()[:-40])
    found["cut"] = str(outcome(read_checkpoint, path, "job")).replace(str(tmp_path), "")
    found["newest whole one"] = (
        DurableStorage(Writing(application), tmp_path, job=_job(tmp_path), num_shards=2).latest().clock
    )
    assert_kept(KEPT / "checkpoints.json", found)


def _job(folder):
    with np.load(sorted(folder.glob("checkpoint-0*.npz"))[0]) as arrays:
        return str(arrays["job"])


def test_stages_by_throughput_come_out_as_before():
    models = {
        "usual": MODEL,
        "all serve": ThroughputModel(work_s=900.0, worker_mb=8.0, model_mb=900.0, bandwidth_mb_per_s=120.0),
        "narrow": ThroughputModel(work_s=60.0, worker_mb=90.0, model_mb=10.0, bandwidth_mb_per_s=40.0, sync_every=10),
    }
    found = {}
    tiers = [(0, 0), (0, 3), (1, 0), (1, 1), (2, 5), (3, 40), (1, 200)]
    for name, model in models.items():
        found[name] = {
            "iterations": [model.iteration_s(stage, *tier) for stage, tier in product(Stage, tiers)],
            "stages": " ".join(model.stage(*tier) for tier in tiers),
            "rates": [model.work_rate(*tier) for tier in tiers[1:]],
            "thresholds": [model.thresholds(reliable, 300) for reliable in (1, 4)],
        }  # fmt: skip
    rules = (Thresholds(), Thresholds(second=2.0, third=2.0), *(Fixed(fixed=stage) for stage in Stage))
    found["rules"] = [" ".join(rule.stage(*tier) for tier in [*tiers, (1, 15), (1, 16), (2, 4)]) for rule in rules]
    assert_kept(KEPT / "stages.json", found)


def test_layouts_and_shares_come_out_as_before():
    found, rng = {}, np.random.default_rng(3)
    previous, owners = None, ()
    for step in range(40):
        reliable = tuple(f"r{k}" for k in sorted(rng.permutation(5)[: int(rng.integers(1, 4))]))
        transient = tuple(f"t{k}" for k in sorted(rng.permutation(7)[: int(rng.integers(1, 6))]))
        stage, most = list(Stage)[int(rng.integers(len(Stage)))], [None, 1, 2][int(rng.integers(3))]
        roles = assign_roles(stage, reliable, transient, 4, max_actives=most, previous=previous)
        owners = assign_balanced(
            len(owners) if step % 3 else int(rng.integers(1, 12)), roles.workers, owners if step % 3 else ()
        )
        same = previous is not None and roles.has_same_shards(previous)
        found[f"{step:02d}"] = " ".join(
            [*roles.workers, "|", *roles.servers, "|", *roles.backups, "|", *owners, str(same)]
        )
        previous = roles
    found["bounds"] = str([bounds(11, count, index) for count in (1, 3, 11, 14) for index in range(count)])
    rows = MatrixFactorisation(num_users=7, num_items=4, num_ratings=30, num_factors=3, num_partitions=2)
    found["shards"] = str([shard_bounds(rows, count) for count in (1, 2, 5, 12)])
    assert_kept(KEPT / "layouts.json", found)


def test_books_of_copies_machines_and_pushes_come_out_as_before():
    """Random calls in a row; whatever can be asked is asked after each."""
    rng, found = np.random.default_rng(9), {}
    ledger, log, machines = ReplicaCatalog(2), PushLog(2, 700.0), Membership()
    holders = (STORAGE, "a", "b")
    for shard in (0, 1):
        ledger.confirm(STORAGE, shard, 0)
    for step in range(120):
        holder, shard, clock = holders[int(rng.integers(3))], int(rng.integers(2)), step // 6 + int(rng.integers(3))
        match int(rng.integers(8)):
            case 0:
                ledger.forget_holder("b")
            case 1:
                ledger.rewind(max(0, ledger.recovery_clock()))
            case 2:
                ledger.keep_only([("a", 0), ("b", 1)])
            case 3:
                found[f"ledger {step}"] = str(ledger.trim())
            case _:
                ledger.confirm(holder, shard, clock)
        due = ledger.checkpoint_due(3)
        asked = [
            ledger.recovery_clock(),
            ledger.storage_clock(),
            -1 if due is None else due,
            ledger.has(holder, shard, clock),
        ]
        found[f"copies {step}"] = f"{asked} {ledger.holders()}" + (
            f" {ledger.source(0, asked[0])}" if asked[0] >= 0 else ""
        )
        pushes = [Push(generation=0, shard=k, partition=step % 2, clock=step // 2, gradient=np.full(5 + k, step, np.float32), weight=1.0) for k in (0, 1)]  # fmt: skip
        log.add(step // 2, step % 2, pushes)
        if step % 17 == 16:
            log.trim(step // 2 - 2, step // 2 - 5)
        orders = [(each.shard, each.from_clock, len(each.clocks)) for each in log.orders(max(0, step // 2 - 4), 7, 2)]
        found[f"log {step}"] = f"{log.num_bytes} {[log.end(at) for at in (0, step // 2 - 1, step // 2)]} {orders}"
    for step in range(60):
        name = f"m{step // 4}"
        match step % 4:
            case 0:
                machines.expect([name], [f"t{step}"])
            case 1:
                found[f"came {step}"] = [
                    machines.arrive(name),
                    machines.arrive(f"t{step - 1}"),
                    machines.arrive("nobody"),
                ]
            case 2:
                found[f"warned {step}"] = outcome(
                    machines.warn, [[name], [name, f"m{step // 4 + 1}"], []][step // 4 % 3]
                )
            case 3:
                found[f"buried {step}"] = [
                    machines.remove(f"t{step - 3}"),
                    machines.remove(name),
                    machines.give_back([f"m{step // 4 - 1}"]),
                ]
        alive = [machines.is_alive(each) for each in (name, STORAGE, "nobody")]
        found[f"machines {step}"] = f"{machines.staying} {machines.leaving} {list(machines.joining)} {alive}"
    found["taken"] = outcome(machines.expect, ["m0"], [])
    assert_kept(KEPT / "books.json", {key: kept.short(value) for key, value in found.items()})


def test_copies_of_a_shard_come_out_as_before():
    def values(clock):
        return ShardValues(0, clock, np.full(3, clock, np.float32), ())

    found, copies = {}, ShardCopies(StoreBackup(generation=1, values=values(2)))
    for step, (begin, clock) in enumerate([(2, 4), (3, 6), (4, 6), (6, 9), (9, 9), (9, 12)]):
        taken = copies.take(Delta(generation=1, from_clock=begin, values=values(clock)))
        found[f"delta {step}"] = [taken, *copies.clocks]
    copies.add(StoreBackup(generation=1, values=values(7)))
    found["added"] = [*copies.clocks, float(copies.values(7).parameters[0]), copies.holds(7), copies.holds(8)]
    found["after"] = [copies.take(Delta(generation=1, from_clock=12, values=values(13))), *copies.clocks]
    found["back"] = [
        copies.rewind(2, 9),
        copies.generation,
        *copies.clocks,
        copies.take(Delta(generation=2, from_clock=9, values=values(10))),
    ]
    copies.trim(7)
    found["trimmed"] = [*copies.clocks, copies.rewind(3, 6), *copies.clocks]
    assert_kept(KEPT / "copies.json", found)


def test_signs_of_life_are_judged_as_before():
    now = [0.0]
    watch = HeartbeatMonitor(2.0, 9.0, clock=lambda: now[0])
    rng, found, beats = np.random.default_rng(2), {"period": watch.period_s}, {}
    for step in range(160):
        now[0] += float(rng.choice([0.1, 0.4, 0.9, 5.0]))
        name = f"m{step % 5}"
        if step % 23 == 3:
            watch.forget(name)
        elif step % 11 == 0:
            watch.expect(name)
        elif step % 7 == 0:
            watch.arrive(name, beats.get(name, 0))
        beats |= {each: beats.get(each, 0) + (rng.random() < 0.3) for each in ("m0", "m1", "m2", "m3")}
        found[f"{step:03d}"] = f"{watch.silent(beats)} {watch.reason(name)}"
    assert_kept(
        KEPT / "watch.json",
        {"all": kept.short(found)} | {key: value for key, value in found.items() if "[]" not in str(value)},
    )


@pytest.fixture
def coarse(monkeypatch):
    """Compare to what sums of floats of 32 bits agree in on all processors."""
    monkeypatch.setattr(kept, "TOL", 1e-5)


def test_what_is_pushed_of_a_gradient_is_what_was_pushed_before(coarse):
    applications = {
        "factors": MatrixFactorisation(num_users=9, num_items=5, num_ratings=40, num_factors=2, num_partitions=2),
        "topics": TopicModel(num_documents=8, num_words=9, num_topics=2, num_tokens=12, num_partitions=2),
        "counts": CountingApplication(2, 6),
    }
    found = {}
    for name, application in applications.items():
        parameters = np.array(application.initial_parameters())
        for densest in (0.0, 0.5, 9.0):
            order = Compute(generation=0, partition=1, clock=3, read_clock=2, parameters=parameters, rate=0.5, densest=densest,
                            unapplied=(np.ones_like(parameters),))  # fmt: skip
            pushed = compute(application, order)
            names = ("gradient", "loss", "is_finite", "rows", "width", "weight_decay_center")
            found[f"{name} none {densest}"] = {own: getattr(pushed, own) for own in names}
    for wrong in (np.zeros(5), np.zeros(6, np.float32), [0.0] * 6, np.zeros((6, 1), np.float32)):
        found[f"gradient {type(wrong).__name__} {np.shape(wrong)} {getattr(wrong, 'dtype', '')}"] = outcome(
            check_gradient, wrong, 6
        )
    for rows in ([0, 2], [2, 0], [0, 3], [1, 1], [-1, 2], []):
        gradient = (np.array(rows, np.int32), np.zeros((len(rows), 2), np.float32))
        found[f"rows {rows}"] = outcome(check_rows, gradient, 6, 2)
    found["of another width"] = outcome(check_rows, (np.zeros(1, np.int32), np.zeros((1, 3), np.float32)), 6, 2)
    assert_kept(KEPT / "pushing.json", found)


def test_when_rows_are_worth_it_and_how_memory_is_laid_out_comes_out_as_before():
    def push(density, width=1, weight_decay_center=None, rows=True):
        held = np.zeros(1, np.int32) if rows else None
        return Push(generation=0, shard=0, partition=0, clock=0, gradient=np.zeros(1, np.float32), rows=held, width=width,
                    weight_decay_center=weight_decay_center, density=density, weight=1.0)  # fmt: skip

    densities = (0.001, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
    found = {
        f"{count} pushes, {slots} slots": str([is_by_rows([push(each, width)] * count, slots) for each in densities for width in (1, 4, 64)])
        for count, slots in product((1, 3, 9), (0, 1, 2))
    }  # fmt: skip
    mixed = [
        [push(0.01), push(0.01, rows=False)],
        [push(0.01), push(0.01, 2)],
        [push(0.01), push(0.01, weight_decay_center=1.0)],
    ]
    found["mixed"] = [is_by_rows(pushes, 0) for pushes in mixed]
    found["padded"] = str([padded(count) for count in (0, 1, 63, 64, 65, 500, 1025, 70_001)])
    for size, partitions, depth, most in ((5, 1, 1, 1), (100, 4, 3, 7), (33, 8, 2, 9)):
        plan = MemoryPlan(num_parameters=size, num_partitions=partitions, depth=depth, max_machines=most)
        found[f"memory {size}"] = [plan.num_rows, plan.num_bytes, plan.rows_at]
    refusing = {rule: NonFinitePushes(rule) for rule in NonFinite}
    spoilt = Pushed(
        generation=0,
        machine="m",
        partition=1,
        clock=4,
        gradient=np.zeros(1, np.float32),
        weight=1.0,
        loss=0.0,
        is_finite=False,
    )
    found |= {f"not finite, {rule}": [outcome(each.refuses, spoilt) for _ in (0, 1)] for rule, each in refusing.items()}
    assert_kept(KEPT / "rows-and-memory.json", found)


def test_rows_reach_the_servers_as_before(coarse):
    """Real gradients by rows: only what doesn't hang on rounding is compared exactly."""
    application = MatrixFactorisation(num_users=20, num_items=9, num_ratings=200, num_factors=2, num_partitions=4)
    options = ClusterOptions(num_shards=3, pushes=Pushes.ROWS, replay_mb=1.0, sync_every=3)
    record = Trainer(application, Adagrad(learning_rate=0.2), options).run(6, random_events(2, 6))
    found = {
        "losses": list(record.losses),
        "parameters": record.parameters,
        "computed": record.num_computed,
        "back": str(record.rollbacks),
    }
    assert_kept(KEPT / "rows.json", found)
