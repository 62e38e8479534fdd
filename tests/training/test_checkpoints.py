"""Checkpoints on disk: a run goes on after its controller is gone, and damage is found."""

from pathlib import Path

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.kernels.parameter_server import Adam
from optim.training.applications import LogisticRegression
from optim.training.checkpoints import NUM_KEPT, DurableStorage, StartingPoint, read_checkpoint, write_checkpoint
from optim.training.messages import Copy, Keep, ShardValues
from optim.training.stages import ClusterOptions
from optim.training.trainer import Action, Event, Trainer, resumable
from optim.training.transport import InProcess

JOB = LogisticRegression(num_observations=80, num_features=6, num_classes=3, num_partitions=4)
RULE = Adam(learning_rate=0.05)
OPTIONS = ClusterOptions(num_shards=3, checkpoint_every=4, sync_every=2)


def machines(*names):
    return [Event(clock=0, action=Action.ADD_RELIABLE, machines=names)]


def begun(folder, application=JOB):
    return resumable(application, RULE, OPTIONS, InProcess(application), folder)


@pytest.mark.parametrize("died_at", [3, 9, 14])
def test_a_run_goes_on_where_the_dead_controllers_storage_stood(tmp_path, died_at):
    undisturbed = Trainer(JOB, RULE, OPTIONS).run(17, machines("a", "b"))
    begun(tmp_path).run(died_at, machines("a", "b"))  # no machine is stopped
    again = begun(tmp_path)
    assert died_at - 4 <= again.clock <= died_at
    record = again.run(17, machines("c"))
    assert record.equals(undisturbed)
    assert record.num_computed == 4 * (17 - begun_clock(again, record))


def begun_clock(trainer, record):
    """The clock before the first row that a trainer wrote."""
    return trainer.rows[0].clock - 1


def test_only_the_last_ones_are_kept_and_a_damaged_one_costs_one_more(tmp_path):
    begun(tmp_path).run(17, machines("a"))
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == NUM_KEPT
    newest = begun(tmp_path).clock
    content = bytearray(paths[-1].read_bytes())
    content[len(content) // 2] ^= 1
    paths[-1].write_bytes(bytes(content))
    assert begun(tmp_path).clock < newest
    paths[0].write_bytes(b"")
    with pytest.raises(InvalidProblemError, match="resumes from the newest intact checkpoint, or starts again"):
        begun(tmp_path)


def test_an_old_one_that_somebody_else_took_away_meanwhile_is_no_fault(tmp_path, monkeypatch):
    trainer = begun(tmp_path)
    gone = tmp_path / "checkpoint-0000000000.npz"
    listed = Path.glob
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: [gone, *listed(folder, pattern)])
    trainer.run(17, machines("a"))
    monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) == NUM_KEPT


def test_another_jobs_checkpoint_is_refused(tmp_path):
    begun(tmp_path).run(9, machines("a"))
    other = LogisticRegression(num_observations=80, num_features=6, num_classes=3, num_partitions=4, seed=1)
    with pytest.raises(InvalidProblemError, match="a checkpoint of another job"):
        begun(tmp_path, other)


def test_what_is_written_is_read_and_every_field_is_under_the_checksum(tmp_path):
    point = StartingPoint(7, np.arange(3, dtype=np.float32), (np.ones(3, np.float32),), (1.0, 0.5))
    path = tmp_path / "checkpoint-1.npz"
    write_checkpoint(path, point, "job")
    read = read_checkpoint(path, "job")
    assert (read.clock, read.losses) == (7, (1.0, 0.5))
    assert np.array_equal(read.parameters, point.parameters)
    assert np.array_equal(read.slots[0], point.slots[0])
    with np.load(path) as archive:
        arrays = dict(archive)
    for name in set(arrays) - {"job"}:
        changed = arrays | {name: arrays[name] + 1 if arrays[name].dtype.kind in "if" else np.array("x")}
        np.savez(path, **changed)
        with pytest.raises(InvalidProblemError, match="its checksum"):
            read_checkpoint(path, "job")


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"parameters": np.array([1, np.inf, 2], np.float32)}, "'parameters' must be from"),
        ({"parameters": np.array([1, np.nan, 2], np.float32)}, "'parameters' must be from"),
        ({"slots": (np.array([0, np.nan, 0], np.float32),)}, "'slots' must be from"),
        ({"parameters": np.ones((3, 1), np.float32)}, "'parameters' must have shape"),
        ({"clock": -1}, "'clock' must be from 0"),
        ({"clock": 1.5}, "'clock' must hold whole numbers"),
    ],
)
def test_whole_checkpoints_of_what_no_run_has_are_refused(tmp_path, changes, cause):
    point = StartingPoint(7, np.arange(3, dtype=np.float32), (np.ones(3, np.float32),), (1.0, 0.5))
    path = tmp_path / "checkpoint-1.npz"
    write_checkpoint(path, point._replace(**changes), "job")
    with pytest.raises(InvalidProblemError, match=f"not a checkpoint .{cause}"):
        read_checkpoint(path, "job")


def storage_of(folder, num_shards=2):
    """Return a storage of two numbers a shard, and a function that has a shard's part of a clock come to it."""
    storage = DurableStorage(JOB, folder, job="j", num_shards=num_shards)

    def come(shard, clock, value=0.0, generation=0):
        values = ShardValues(shard, clock, np.full(2, value, np.float32), ())
        storage.handle(Copy(generation=generation, values=values))
        return [int(path.stem[-10:]) for path in sorted(folder.iterdir())]

    return storage, come


def test_what_a_run_takes_back_is_no_part_of_a_later_checkpoint(tmp_path):
    """A rollback to clock 2 undoes shard 1's part of clock 5; the part of the new history replaces it."""
    storage, come = storage_of(tmp_path)
    come(0, 2, 1.0), come(1, 2, 1.0), come(1, 5, 7.0)
    storage.handle(Keep(generation=1, last=2))
    assert come(0, 5, 2.0, generation=1) == [2]
    assert come(1, 5, 3.0, generation=1) == [2, 5]
    assert read_checkpoint(tmp_path / "checkpoint-0000000005.npz", "j").parameters.tolist() == [2.0, 2.0, 3.0, 3.0]


def test_a_checkpoint_that_cannot_be_written_is_an_error_of_the_folder_not_of_the_application(tmp_path):
    _, come = storage_of(tmp_path / "gone", 1)
    (tmp_path / "gone").rmdir()
    with pytest.raises(InvalidProblemError, match="can't be written"):
        come(0, 2)


def test_a_checkpoint_that_is_taken_back_is_written_anew(tmp_path):
    storage, come = storage_of(tmp_path)
    for clock in (2, 5):
        come(0, clock, 1.0), come(1, clock, 1.0)
    storage.handle(Keep(generation=1, last=3))
    assert come(0, 5, 2.0, generation=1) == [2], "nobody finds what was undone"
    assert come(1, 5, 3.0, generation=1) == [2, 5]
    assert read_checkpoint(tmp_path / "checkpoint-0000000005.npz", "j").parameters.tolist() == [2.0, 2.0, 3.0, 3.0]


def test_the_only_checkpoint_stays_until_there_is_another(tmp_path):
    storage, come = storage_of(tmp_path)
    come(0, 5, 1.0), come(1, 5, 1.0)
    storage.handle(Keep(generation=1, last=0))
    assert come(0, 2, 2.0, generation=1) == [5]
    assert come(1, 2, 2.0, generation=1) == [2, 5]


def test_a_damaged_checkpoint_is_not_one_of_the_two_that_are_kept(tmp_path):
    _, come = storage_of(tmp_path, 1)
    come(0, 20), come(0, 25)
    (tmp_path / "checkpoint-0000000025.npz").write_bytes(b"cut short")
    storage, come = storage_of(tmp_path, 1)
    assert storage.latest().clock == 20
    assert come(0, 30) == [20, 25, 30]
    (tmp_path / "checkpoint-0000000030.npz").write_bytes(b"cut short")
    storage, come = storage_of(tmp_path, 1)
    assert storage.latest().clock == 20
    assert come(0, 25) == [20, 25, 30], "written anew it is whole again"
    assert come(0, 35) == [25, 30, 35]


def test_a_checkpoint_is_written_once_all_shards_have_come(tmp_path):
    storage = DurableStorage(JOB, tmp_path, job="j", num_shards=2)
    storage.losses = lambda: [3.0, 2.0, 1.0]

    def come(shard, clock):
        values = ShardValues(shard, clock, np.full(2, clock + shard, np.float32), ())
        storage.handle(Copy(generation=0, values=values))
        return [path.name for path in sorted(tmp_path.iterdir())]

    assert come(1, 2) == []
    assert come(0, 4) == []
    assert come(0, 2) == ["checkpoint-0000000002.npz"]
    assert come(0, 2) == come(1, 2) == ["checkpoint-0000000002.npz"]
    assert len(come(1, 4)) == 2
    point = read_checkpoint(tmp_path / "checkpoint-0000000002.npz", "j")
    assert (point.clock, point.parameters.tolist(), point.losses) == (2, [2.0, 2.0, 3.0, 3.0], (3.0, 2.0))
