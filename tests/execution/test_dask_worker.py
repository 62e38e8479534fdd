"""A worker's side of a batch, without a cluster: its work, and its state after a request to stop."""

import pickle
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed")

from optim.execution import dask_cluster
from optim.execution.dask_cluster import RunStatePlugin, TaskPart, ask_to_stop, do_batch
from optim.execution.tasks import Packer, Unpacker
from tests.support.sample_tasks import Squares


@pytest.mark.parametrize(("is_stopped", "results"), [(False, [4, 9]), (True, [])])
def test_a_worker_that_was_asked_to_stop_begins_no_further_piece(is_stopped, results, monkeypatch):
    packer, desk = Packer(), RunStatePlugin({})
    desk.unpacker = Unpacker()
    worker = SimpleNamespace(plugins={"run": desk})
    monkeypatch.setattr(dask_cluster, "get_worker", lambda: worker)
    batch = packer.pack(TaskPart(Squares()), "task"), [0, 1], [packer.pack(number, "piece") for number in (2, 3)]
    if is_stopped:
        ask_to_stop("run", worker)
    packed, _, _ = do_batch("run", pickle.dumps(batch), packer.parts)
    assert [outcome.result for outcome in pickle.loads(packed)] == results
