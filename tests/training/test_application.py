"""A user's application has four methods, and trains like any other."""

import jax.numpy as jnp
import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.kernels.parameter_server import Sgd
from optim.training.application import DeviceApplication, UserApplication, check_application, name_of
from optim.training.stages import ClusterOptions, Fixed, Stage
from optim.training.trainer import Action, Event, Trainer, resumable, run_alone
from optim.training.transport import InProcess
from tests.support.training.oracle import CountingApplication

TARGETS = np.arange(12.0).reshape(2, 2, 3)


class Means(UserApplication):
    """Two partitions of different sizes, each with a target matrix."""

    def sizes(self):
        return [1, 3]

    def start(self):
        return np.zeros((2, 3))

    def loss(self, parameters, partition, clock):
        return 0.5 * float(((parameters - TARGETS[partition]) ** 2).sum())

    def slope(self, parameters, partition, clock):
        assert parameters.shape == (2, 3)
        return parameters - TARGETS[partition]


def test_it_converges_to_the_mean_weighted_by_sizes():
    record = run_alone(Means(), Sgd(learning_rate=0.5), 40)
    np.testing.assert_allclose(record.parameters.reshape(2, 3), (TARGETS[0] + 3 * TARGETS[1]) / 4, rtol=1e-5)
    first = [0.5 * (target**2).sum() for target in TARGETS]
    assert record.losses[0] == pytest.approx((first[0] + 3 * first[1]) / 4)
    assert (Means().num_partitions, Means().num_parameters, Means().weight(1)) == (2, 6, 3.0)


@pytest.mark.parametrize("sizes", [[], [0, 0], [3, -1], [np.nan, 1], [np.inf, 1]])
def test_no_data_is_refused_before_anybody_waits_for_it(sizes):
    class Few(Means):
        def sizes(self):
            return sizes

    with pytest.raises(InvalidProblemError, match="Few must have sizes of at least 0"):
        Trainer(Few(), Sgd(learning_rate=0.5))


def test_what_lacks_parameters_or_methods_is_refused():
    class Nothing(Means):
        def start(self):
            return np.zeros(0)

    with pytest.raises(InvalidProblemError, match="Nothing has no parameters"):
        Trainer(Nothing(), Sgd(learning_rate=0.5))
    with pytest.raises(InvalidProblemError, match=r"object has no num_partitions, num_parameters, .*UserApplication"):
        Trainer(object(), Sgd(learning_rate=0.5))


def test_another_process_goes_on_from_its_checkpoints_for_its_name_holds_no_address(tmp_path):
    """Two objects represent those of two processes: they have different addresses."""
    first, second = Means(), Means()
    traditional = ClusterOptions(policy=Fixed(fixed=Stage.TRADITIONAL), checkpoint_every=5)
    assert name_of(first) == name_of(second)
    start = [Event(clock=0, action=Action.ADD_RELIABLE, machines=("r",))]
    begun = resumable(first, Sgd(learning_rate=0.5), traditional, InProcess(first), tmp_path)
    begun.run(12, start)
    again = resumable(second, Sgd(learning_rate=0.5), traditional, InProcess(second), tmp_path)
    assert again.clock == 10
    assert again.run(20, start).equals(run_alone(Means(), Sgd(learning_rate=0.5), 20))


def test_other_data_or_another_class_has_another_name():
    class More(Means):
        def sizes(self):
            return [2, 3]

    class Same(Means):
        pass

    assert len({name_of(own()) for own in (Means, More, Same)}) == 3


def test_an_application_may_have_plain_attributes_for_its_numbers():
    application = CountingApplication(3, 7)
    check_application(application)
    del application.num_parameters
    with pytest.raises(InvalidProblemError, match=r"^CountingApplication has no num_parameters; derive it from"):
        check_application(application)


class VectorLoss(DeviceApplication):
    """A loss per example, which has no gradient."""

    num_partitions = 1

    def init(self, key):
        return jnp.zeros(2)

    def partition(self, index):
        return jnp.ones(3)

    def loss(self, parameters, batch):
        return (parameters.sum() - batch) ** 2

    def weight(self, partition):
        return 3.0


def test_a_loss_per_example_is_refused_by_the_name_of_its_class():
    with pytest.raises(InvalidProblemError, match=r"VectorLoss\.loss must return one number, got shape \(3,\)"):
        VectorLoss().gradient(np.zeros(2, np.float32), 0, 0)
