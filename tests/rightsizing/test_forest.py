"""The forest: similar samples share leaves or are near, their successors give the forecast; errors name a missing extra."""

import numpy as np
import pytest

from optim.core.errors import MissingDependencyError
from optim.rightsizing import Slo, compare_policies, make_plan
from optim.rightsizing.features import view_features
from optim.rightsizing.learned_policies import DRAWS_OF_A_LEAF, NUM_TREES, Forest, KnnQuantiles
from optim.rightsizing.policy import views
from optim.rightsizing.world import WorldOptions, prepare_split
from optim.workloads.containers import ContainerOptions, generate_containers
from tests.support.containers.worlds import world_of

RNG = np.random.default_rng(12)


def test_names_the_extra_that_it_needs(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn.ensemble", None)
    with pytest.raises(MissingDependencyError, match=r"mlcluster-optim\[learn\]"):
        make_plan(world_of([np.ones(20)]), "forest")


@pytest.mark.prove
def test_two_thirds_of_what_counts_share_a_leaf_and_the_rest_is_nearest():
    training = [RNG.lognormal(size=(int(n), 2)) for n in RNG.integers(60, 120, size=12)]
    world = world_of([RNG.lognormal(size=(22, 2)) for _ in range(3)], training=training)
    policy = Forest(world)
    known = policy._model.apply(policy._examples.features.values)
    view = next(iter(views(world, np.zeros((*world.samples.shape, 2)))))
    moments = view_features(view, world, has_phases=False)
    asked = policy._model.apply(moments.values)
    cpu, memory = policy._similar(moments)
    assert np.array_equal(cpu, memory)
    drawn = cpu[:, : NUM_TREES * DRAWS_OF_A_LEAF].reshape(len(cpu), NUM_TREES, DRAWS_OF_A_LEAF)
    for tree in range(NUM_TREES):
        assert (known[drawn[:, tree], tree] == asked[:, [tree]]).all()
    nearest = KnnQuantiles(world)._similar(moments)[0][:, :50]
    assert [set(own) for own in cpu[:, NUM_TREES * DRAWS_OF_A_LEAF :]] == [set(own) for own in nearest]


@pytest.mark.prove
def test_saves_less_than_the_bound_and_the_same_each_time():
    series = generate_containers(ContainerOptions(num_containers=60), seed=7)
    trial = prepare_split(series, WorldOptions(encoder="truth"), 0)
    wanted = Slo(kills=0.1, throttled=0.1)
    names = ("forest", "forest-phases", "clairvoyant")
    one, two = (
        [row for rows in compare_policies(trial, names, wanted, num_resamples=1, seed=0) for row in rows]
        for _ in range(2)
    )
    assert one == two
    rows = {row.policy: row for row in one}
    assert rows["forest"].reduction != rows["forest-phases"].reduction
    assert max(rows[name].reduction for name in names[:2]) < rows["clairvoyant"].most
