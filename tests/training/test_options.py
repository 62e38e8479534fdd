"""Ranges of the training options, at their limits and beyond."""

import pytest

from optim.core.errors import InvalidOptionError
from optim.training.drill import DrillOptions
from optim.training.messages import NonFinite, Pushes
from optim.training.stages import STORAGE, ClusterOptions, Thresholds, ThroughputModel
from optim.training.trainer import Action, Event

LEAST = [
    (ClusterOptions, {"num_shards": 1, "staleness": 0, "sync_every": 1, "checkpoint_every": 1, "max_actives": 1}),
    (DrillOptions, {"kills": 1, "clocks_between": 1, "max_messages": 0, "transient": 2}),
]


@pytest.mark.parametrize(("options", "name", "least"), [(kind, *one) for kind, all_ in LEAST for one in all_.items()])
def test_the_least_value_is_allowed_and_nothing_below(options, name, least):
    assert getattr(options(**{name: least}), name) == least
    with pytest.raises(InvalidOptionError, match=f"^{name} must be at least {least}, got {least - 1}$"):
        options(**{name: least - 1})


@pytest.mark.parametrize("name", ["clock", "after_messages"])
def test_an_event_is_not_before_the_beginning(name):
    valid = {"clock": 0, "action": Action.EVICT, "machines": ("a",), "after_messages": 0}
    assert Event(**valid).clock == 0
    with pytest.raises(InvalidOptionError, match=f"^{name} must be at least 0"):
        Event(**{**valid, name: -1})


@pytest.mark.parametrize("name", ["work_s", "worker_mb", "model_mb", "bandwidth_mb_per_s", "sync_every", "max_actives"])
def test_a_model_of_throughput_has_positive_sizes(name):
    valid = {"work_s": 1.0, "worker_mb": 1.0, "model_mb": 1.0, "bandwidth_mb_per_s": 1.0, "sync_every": 1}
    with pytest.raises(InvalidOptionError, match=f"^{name} must be"):
        ThroughputModel(**{**valid, name: 0})


def test_thresholds_may_be_equal_and_nought():
    assert (Thresholds(second=0.0, third=0.0).second, Thresholds(second=2.0, third=2.0).third) == (0.0, 2.0)
    with pytest.raises(InvalidOptionError, match="0 <= second"):
        Thresholds(second=-0.1, third=1.0)


def test_what_goes_to_the_storage_is_a_checkpoint():
    options = ClusterOptions(sync_every=3, checkpoint_every=7)
    assert (options.sync_period("machine"), options.sync_period(STORAGE)) == (3, 7)


def test_a_choice_given_as_a_text_is_that_choice():
    """The trainer compares choices by identity, so a plain string that isn't converted would have no effect."""
    texts = ClusterOptions(pushes="dense", non_finite="skip")
    assert texts == ClusterOptions(pushes=Pushes.DENSE, non_finite=NonFinite.SKIP)
    assert texts.pushes is Pushes.DENSE
    assert texts.non_finite is NonFinite.SKIP
    with pytest.raises(InvalidOptionError, match=r"^pushes must be one of auto, dense, rows, got 'int9'$"):
        ClusterOptions(pushes="int9")
