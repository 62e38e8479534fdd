"""The model: conventions, files, irregular samples, updates, watching, and the rule for the number of phases."""

import pickle
from copy import deepcopy

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError, NotAllowedError
from optim.models.containers.series import ContainerSeries
from optim.phases import PhaseModel, adjusted_rand_index
from optim.phases.clustering import assign, choose_count
from optim.phases.preprocessing import ScaledSeries, split_containers
from optim.workloads.containers import ContainerOptions, generate_containers

SETTINGS = {"encoder": "window-statistics", "num_phases": 4}


def drawn(number, seed=0, **options):
    return generate_containers(ContainerOptions(num_containers=number, **options), seed)


@pytest.fixture(scope="module")
def series():
    """Thirty containers on the grid."""
    return drawn(30)


@pytest.fixture(scope="module")
def model(series):
    """A model with four phases by window statistics."""
    return PhaseModel(**SETTINGS).fit(series)


def test_parameters_are_those_given_and_can_be_set():
    made = PhaseModel(**SETTINGS)
    assert made.get_params()["num_phases"] == 4
    assert PhaseModel(**made.get_params()).get_params() == made.get_params()
    assert made.set_params(smoothing=3) is made
    assert made.smoothing == 3
    with pytest.raises(InvalidOptionError, match="unknown parameter of PhaseModel 'speed'"):
        made.set_params(speed=1)


def test_only_samples_without_history_have_no_phase(model, series):
    labels = model.predict(series)
    place = np.arange(series.num_samples) - np.repeat(series.starts, series.lengths)
    assert np.array_equal(labels < 0, place < 3)
    assert set(labels[labels >= 0].tolist()) == set(range(4))


def test_true_phases_are_not_looked_at(model, series):
    from dataclasses import replace

    blind = PhaseModel(**SETTINGS).fit(replace(series, phase=None, phase_names=()))
    assert np.array_equal(blind.predict(series), model.predict(series))


def test_phases_are_ordered_by_memory(model):
    memory = model.statistics_.mean[:, 1]
    assert (np.diff(memory) >= 0).all()


def test_no_phase_is_kept_for_the_first_samples_alone(model, series):
    # Codes of zeros before there is history would form a separate cluster.
    codes = model.transform(series)
    known = codes[np.isfinite(codes).all(axis=1)]
    assert (np.abs(known).max(axis=1) > 0).all()
    labels = model.predict(series)
    place = np.arange(series.num_samples) - np.repeat(series.starts, series.lengths)
    for phase in range(4):
        assert place[labels == phase].max() > 3


def test_padding_gives_every_sample_a_phase_and_leaves_the_rest_alone(series):
    padded = PhaseModel(**SETTINGS, is_padded=True).fit(series)
    assert (padded.predict(series) >= 0).all()


def test_saves_and_loads_all_that_it_knows(model, series, tmp_path):
    model.save(tmp_path / "one.npz")
    model.save(tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    again = PhaseModel.load(tmp_path / "one.npz")
    assert np.array_equal(again.predict(series), model.predict(series))
    assert again.names_ == model.names_
    assert np.array_equal(again.forecast(series, 5), model.forecast(series, 5), equal_nan=True)
    assert np.array_equal(again.anomaly_scores(series), model.anomaly_scores(series), equal_nan=True)
    assert again.prototypes() == model.prototypes()
    assert again.get_params() == model.get_params()


@pytest.mark.parametrize(
    ("content", "cause"), [(b"", "empty"), (b"no archive", "no archive"), (pickle.dumps({"a": 1}), "no archive")]
)
def test_other_files_are_no_models(tmp_path, content, cause):
    path = tmp_path / "model.npz"
    path.write_bytes(content)
    with pytest.raises(InvalidProblemError, match=f"not a phase model .*{cause}") as caught:
        PhaseModel.load(path)
    assert "allow_pickle" not in str(caught.value)


def test_other_archives_are_no_models(tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, values=np.zeros(3))
    with pytest.raises(InvalidProblemError, match="no 'header' in it"):
        PhaseModel.load(path)


def test_an_archive_with_a_pickle_is_not_loaded(tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, header=np.array([{"schema": "optim/phase-model/1"}], dtype=object))
    with pytest.raises(InvalidProblemError, match="not a phase model"):
        PhaseModel.load(path)


def test_irregular_samples_have_the_phase_of_their_point_of_the_grid(model):
    rough = drawn(6, seed=1, missing=0.1, jitter=0.3)
    labels = model.predict(rough)
    assert labels.shape == (rough.num_samples,)
    grid = model.prepare(rough)
    assert np.array_equal(labels, model.label(rough).labels[grid.row])


def test_labels_of_a_container_do_not_depend_on_the_others(model, series):
    alone = model.predict(series.select([7]))
    assert np.array_equal(alone, model.predict(series)[series.rows(7)])


def test_labels_do_not_depend_on_later_samples(model, series):
    own = series.select([3])
    short = ContainerSeries(
        resources=own.resources,
        containers=own.containers,
        lengths=np.array([50]),
        values=own.values[:50],
        time_s=own.time_s[:50],
        interval_s=own.interval_s,
    )
    assert np.array_equal(model.predict(short), model.predict(own)[:50])


@pytest.mark.parametrize("names", [pytest.param(["cpu"], marks=pytest.mark.prove), ["network", "memory", "cpu"]])
def test_any_named_resources_will_do(names):
    rich = drawn(12, has_network=True)
    made = PhaseModel(**SETTINGS, resources=names).fit(rich)
    assert [resource.name for resource in made.resources_] == names
    assert made.statistics_.mean.shape == (4, len(names))
    with pytest.raises(InvalidProblemError, match="no resource"):
        made.predict(rich.select_resources(["cpu" if "network" in names else "memory"]))


def test_forecasts_and_demands_have_a_row_a_segment(model, series):
    found = model.forecast(series, num_steps=8)
    assert found.shape == (30, 8, 4)
    assert found.sum(axis=2) == pytest.approx(1.0)
    low, high = (model.demand_quantile(series, level, num_steps=8) for level in (0.5, 0.95))
    assert (low <= high).all()
    assert (high <= model.statistics_.quantile(1.0).max(axis=0)).all()


def test_partial_fit_moves_centres_to_the_mean_of_all_codes(model):
    made = deepcopy(model)
    before, weights, count = made.centres_, made.weights_, made.statistics_.count
    fresh = drawn(10, seed=5)
    codes = made.transform(fresh)
    codes = codes[np.isfinite(codes).all(axis=1)]
    nearest = assign(codes, before)
    made.partial_fit(fresh)
    for phase in range(4):
        own = codes[nearest == phase]
        expected = (weights[phase] * before[phase] + own.sum(axis=0)) / (weights[phase] + len(own))
        assert made.centres_[phase] == pytest.approx(expected)
    assert made.runs_.num_segments == 40
    assert made.statistics_.count.sum() == count.sum() + len(codes)
    assert np.isfinite(made.forecast(fresh, 3)).all()


def test_partial_fit_of_a_new_model_is_fit(model, series):
    assert np.array_equal(PhaseModel(**SETTINGS).partial_fit(series).predict(series), model.predict(series))


def test_usual_containers_raise_no_alarm_and_odd_ones_do(hundred):
    model = hundred
    usual, odd = drawn(20, seed=6), drawn(20, seed=6, noise=5.0)
    threshold = model.calibrations_["forecast-error"].threshold
    shares = []
    for part in (usual, odd):
        scores = model.anomaly_scores(part)
        shares.append((scores[np.isfinite(scores)] > threshold).mean())
        trigger = model.drift_trigger()
        for score in model.container_scores(part).tolist():
            trigger.update(score)
        assert trigger.is_triggered == (part is odd)
    assert shares[0] < 0.03 < shares[1]


def test_a_score_that_the_encoder_lacks_is_refused(model, series):
    with pytest.raises(InvalidOptionError, match="forecast-error"):
        model.anomaly_scores(series, "free-energy")


def test_an_unfitted_model_says_so(series):
    with pytest.raises(NotAllowedError, match="isn't fitted"):
        PhaseModel().predict(series)


@pytest.mark.parametrize("wrong", [{"num_phases": 0}, {"smoothing": 0}, {"anomaly_rate": 1.5}, {"interval_s": 90.0}])
def test_wrong_parameters_are_refused_by_name(series, wrong):
    with pytest.raises(InvalidOptionError, match=next(iter(wrong))):
        PhaseModel(**{**SETTINGS, **wrong}).fit(series)


def test_series_too_short_for_a_window_are_refused(series):
    with pytest.raises(InvalidProblemError, match="more than 30 samples"):
        PhaseModel(**SETTINGS, encoder_options={"num_delays": 30}).fit(
            ContainerSeries(
                resources=series.resources,
                containers=("a", "b"),
                lengths=np.array([10, 10]),
                values=series.values[:20],
                time_s=np.tile(np.arange(10) * 15.0, 2),
            )
        )


def of_lengths(*lengths):
    """Return containers of these lengths, cut from random ones."""
    source = drawn(1, seed=4)
    values = np.concatenate([source.values[:length] for length in lengths])
    return ContainerSeries(
        resources=source.resources,
        containers=tuple(f"c{place}" for place in range(len(lengths))),
        lengths=np.array(lengths),
        values=values,
        time_s=np.concatenate([np.arange(length) * 15.0 for length in lengths]),
    )


@pytest.mark.parametrize(
    ("encoder", "lengths"),
    [
        ("window-statistics", (60, 1)),
        ("raw-window", (1, 60, 2, 3)),
        pytest.param("raw-window", (60, 3, 3, 3), marks=pytest.mark.prove),
        pytest.param("hmm", (60, 1, 3), marks=pytest.mark.prove),
    ],
)
def test_containers_shorter_than_a_window_never_stand_in_the_way(encoder, lengths):
    few = of_lengths(*lengths)
    options = {"num_restarts": 1, "max_iterations": 3} if encoder == "hmm" else None
    made = PhaseModel(encoder=encoder, encoder_options=options, num_phases=2).fit(few)
    labels, scores = made.predict(few), made.anomaly_scores(few)
    # The score of the switching autoregression needs one sample of history, the linear rule's three.
    place, history = np.concatenate([np.arange(length) for length in lengths]), 1 if encoder == "hmm" else 3
    short = np.repeat(np.array(lengths) <= history, lengths)
    assert (labels[~short] >= 0).any()
    np.testing.assert_array_equal(np.isnan(scores), place < history)
    assert len(made.container_scores(few)) == sum(length > history for length in lengths)
    made.partial_fit(few)
    assert np.isfinite(made.anomaly_scores(few)[~short]).any()


def test_containers_that_tell_nothing_are_never_held_out():
    parts = of_lengths(9, 1, 9, 2, 9, 3, 9)
    for seed in range(20):
        training, held = split_containers(parts, 0.5, np.random.default_rng(seed), min_samples=4)
        assert len(held) == 2
        assert (parts.lengths[held] == 9).all()
        assert sorted([*training, *held]) == list(range(7))
    alone = of_lengths(2, 9, 3)
    both = split_containers(alone, 0.5, np.random.default_rng(0), min_samples=4)
    assert [part.tolist() for part in both] == [[0, 1, 2], [0, 1, 2]]


def test_an_update_without_a_scored_sample_is_refused_and_changes_nothing(model, series):
    made = deepcopy(model)
    before, centres = made.calibrations_, made.centres_
    with pytest.raises(InvalidProblemError, match="give longer series"):
        made.partial_fit(of_lengths(2, 3))
    assert made.calibrations_ == before
    assert np.array_equal(made.centres_, centres)
    assert made.runs_.num_segments == series.num_segments


@pytest.mark.parametrize("call", ["fit", "predict", "label", "partial_fit", "forecast", "anomaly_scores"])
def test_what_is_no_series_is_refused_with_the_way_to_make_one(model, call):
    with pytest.raises(InvalidProblemError, match=r"got ndarray; make one with ContainerSeries\.from_arrays"):
        getattr(PhaseModel(**SETTINGS) if call == "fit" else model, call)(np.ones((9, 2)))


def blobs(number, seed):
    """Four clear clusters of codes."""
    rng = np.random.default_rng(seed)
    return rng.permutation(np.repeat([[0, 0], [9, 0], [0, 9], [9, 9]], number, axis=0)) + rng.normal(
        size=(4 * number, 2)
    )


def test_the_rule_finds_as_many_clusters_as_there_are():
    training = blobs(60, 0)
    number, rows = choose_count(training, np.arange(240) // 8, blobs(30, 1), 0, candidates=(2, 3, 4, 5))
    assert number == 4
    assert rows[-1].gain < 0.02
    assert rows[2].stability > 0.95
    assert rows[2].silhouette > max(rows[0].silhouette, rows[3].silhouette)


def test_assignment_is_to_the_nearest_centre():
    codes = blobs(20, 2)
    centres = np.array([[9.0, 1.0], [0.5, 0.5], [8.0, 9.0], [0.0, 8.0]])
    distance = np.linalg.norm(codes[:, None] - centres[None], axis=2)
    assert np.array_equal(assign(codes, centres), distance.argmin(axis=1))
    assert adjusted_rand_index(assign(codes, centres), assign(codes, centres[::-1])) == 1.0


def test_containers_are_held_out_whole():
    parts = drawn(10).select([0, 0, 1, 2, 3, 3, 4])
    training, held = split_containers(parts, 0.4, np.random.default_rng(0))
    assert not set(parts.container_index[training]) & set(parts.container_index[held])
    assert len(set(parts.container_index[held])) == 2


def test_windows_of_padded_series_repeat_the_first_sample():
    plain = ScaledSeries(values=np.array([[1.0], [2.0], [5.0]]), lengths=np.array([2, 1]))
    padded = plain.padded(2)
    assert padded.values[:, 0].tolist() == [1, 1, 1, 2, 5, 5, 5]
    assert padded.lengths.tolist() == [4, 3]
    assert len(padded.ends(2)) == 3


@pytest.mark.parametrize(
    ("encoder", "options", "kinds"),
    [
        ("crbm", {"num_epochs": 10, "num_hidden": 4}, {"forecast-error", "free-energy"}),
        pytest.param(
            *("hmm", {"num_restarts": 1, "max_iterations": 5, "stickiness": 1.0}, {"forecast-error", "surprise"}),
            marks=pytest.mark.prove,
        ),
    ],
)
def test_fitted_encoders_are_saved_and_scored_too(encoder, options, kinds, tmp_path):
    few = drawn(1)  # one container is on both sides of every split: each kernel is compiled for one shape
    made = PhaseModel(encoder=encoder, encoder_options=options, num_phases=3).fit(few)
    made.save(tmp_path / "model.npz")
    again = PhaseModel.load(tmp_path / "model.npz")
    assert np.array_equal(again.predict(few), made.predict(few))
    assert set(made.calibrations_) == kinds
    (own,) = kinds - {"forecast-error"}
    assert again.default_score == own
    assert np.array_equal(made.anomaly_scores(few), made.anomaly_scores(few, own), equal_nan=True)
    older = PhaseModel.load(tmp_path / "model.npz")
    del older.calibrations_[own]
    assert older.default_score == "forecast-error"
    for kind in kinds:
        scores = made.anomaly_scores(few, kind)
        assert np.array_equal(again.anomaly_scores(few, kind), scores, equal_nan=True)
        assert np.isfinite(scores[few.starts + 3]).all()
