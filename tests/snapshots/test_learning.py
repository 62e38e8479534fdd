"""Results of training with many evictions, the first steps of applications, and descriptions of models of phases."""

import numpy as np
import pytest

from optim.kernels.parameter_server import Sgd
from optim.phases import PhaseModel
from optim.phases.forecasting import ForecastMethod
from optim.phases.rows import edge_rows, forecast_rows, phase_rows, summary_of
from optim.training.applications import LogisticRegression, MatrixFactorisation, TopicModel
from optim.training.stages import ClusterOptions, Fixed, Stage, Thresholds, ThroughputModel
from optim.training.trainer import Trainer
from optim.training.transport import InProcess
from tests.support.containers.worlds import drawn_series
from tests.support.snapshots import answer, assert_snapshot, line, shown
from tests.support.training.oracle import CountingApplication
from tests.support.training.storms import random_events

CLOCKS = 9
MODEL = ThroughputModel(
    work_s=40.0, worker_mb=30.0, model_mb=120.0, bandwidth_mb_per_s=100.0, sync_every=3, max_actives=5
)
RUNS = {
    "plain": {"num_shards": 1},
    "shards": {"num_shards": 2, "checkpoint_every": 3, "sync_every": 1, "policy": Thresholds(second=0.5, third=2.0)},
    "late": {"num_shards": 2, "staleness": 2, "max_actives": 1, "policy": Thresholds(second=0.0, third=9.0)},
    "replayed": {"num_shards": 2, "replay_mb": 1.0, "policy": Fixed(fixed=Stage.BACKED_UP)},
    "traditional": {"num_shards": 2, "checkpoint_every": 2, "policy": Fixed(fixed=Stage.TRADITIONAL)},
    "separate": {"num_shards": 1, "policy": Fixed(fixed=Stage.SEPARATE), "replay_mb": 1.0},
    "model": {"num_shards": 2, "policy": MODEL},
}
APPLICATIONS = {
    "factors": MatrixFactorisation(num_users=12, num_items=7, num_ratings=90, num_factors=3, num_partitions=3, seed=4),
    "classes": LogisticRegression(num_observations=31, num_features=5, num_classes=4, num_partitions=3, batch=0.6),
    "topics": TopicModel(num_documents=10, num_words=11, num_topics=3, num_tokens=20, num_partitions=3, seed=2),
}


@pytest.mark.parametrize("name", RUNS)
def test_training_under_storms(name):
    lines = []
    for seed in range(6):
        application = CountingApplication(4, 6)
        trainer = Trainer(application, Sgd(learning_rate=1.0), ClusterOptions(**RUNS[name]), InProcess(application))
        record = answer(trainer.run, CLOCKS, random_events(seed, CLOCKS))
        if isinstance(record, str):
            lines.append(line(f"storm {seed}", record, width=8))
            continue
        stages = " ".join(f"{row.stage}:{row.reliable}+{row.transient}" for row in record.rows)
        rollbacks = [f"{one.from_clock}>{one.to_clock}" for one in record.rollbacks]
        figures = [f"{record.num_computed} computed", f"{record.num_skipped} skipped", f"rollbacks {shown(rollbacks)}"]
        lines.append(line(f"storm {seed}", float(record.parameters.sum()), *figures, stages, width=8))
    assert_snapshot("training", name, lines)


@pytest.mark.parametrize("name", APPLICATIONS)
def test_applications(name):
    application = APPLICATIONS[name]
    parameters = np.array(application.initial_parameters())
    later = np.abs(parameters) + np.float32(0.1)
    lines = [line("examples and parameters", application.num_examples, application.num_parameters)]
    for partition, clock in ((0, 0), (1, 3), (2, 8)):
        for what, own in (("initial", parameters), ("later", later)):
            gradient, loss = application.gradient(own, partition, clock)
            norm = float(np.abs(gradient).sum(dtype=np.float64))
            lines.append(line(f"{what} {partition} {clock}", float(loss), norm))
    assert_snapshot("training", f"{name}: loss and size of gradients", lines)


def rounded(row):
    """Return a row with floats to 4 digits, since they are sums in 32 bits."""
    return {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()}


def test_phases():
    model = PhaseModel(encoder="window-statistics", num_phases=3, min_dwell=2, smoothing=3).fit(drawn_series(41, 14))
    fresh = drawn_series(42, 6)
    lines = [line("summary", rounded(summary_of(model, fresh)), width=9)]
    lines += [line("phase", rounded(row), width=9) for row in phase_rows(model)]
    lines += [line("change", rounded(row), width=9) for row in edge_rows(model, None)]
    rows = forecast_rows(model, fresh, 4, 0.95, ForecastMethod.MARKOV)
    lines += [line("forecast", rounded(row), width=9) for row in rows[:12]]
    assert_snapshot("phases", "three phases of fourteen containers", lines)
