"""Data, gradients and files of the applications come out as they were kept, up to rounding."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from optim.training.applications import LogisticRegression, MatrixFactorisation, TopicModel
from optim.training.applications.generated import read_bags, read_examples, read_ratings
from tests.support import kept
from tests.support.kept import assert_kept, outcome

KEPT = Path(__file__).parent / "kept"
APPLICATIONS = {
    "factors": MatrixFactorisation(num_users=12, num_items=7, num_ratings=90, num_factors=3, num_partitions=3, seed=4),
    "classes": LogisticRegression(num_observations=31, num_features=5, num_classes=4, num_partitions=3, batch=0.6),
    "topics": TopicModel(num_documents=10, num_words=11, num_topics=3, num_tokens=20, num_partitions=3, seed=2),
}
FILES = {
    "ratings": (read_ratings, ["user,item,rating\nb,x,3\na,y,4.5\na,x,1,99\n\n# c\n", "7::1::5\n3::2::4\n", "a b\n", "a b x\na b 2\n", "1 2 nan\n", "1 2 x\n", ""]),
    "examples": (read_examples, ["1 1:2 4:0.5\n-1\n# c\n1 2:3\n", "0 0:1\n", "x 1:1\n", "1 1:inf\n", "1 1\n", "", "2\n"]),
    "bags": (read_bags, ["2\n3\n3\n1 2 4\n2 3 1\n1 2 1\n", "2\n3\n2\n1 2 4\n", "2\n3\n1\n3 1 1\n", "2\n3\n1\n1 4 1\n", "2\n3\n1\n1 1 0\n", "0\n3\n0\n", "1 2\n", ""]),
}  # fmt: skip


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Compare to what floats of 32 bits agree in on all processors."""
    monkeypatch.setattr(kept, "TOL", 1e-5)


def arrays(data):
    """Return data as arrays."""
    if sparse.issparse(data):
        return [data.toarray()]
    return list(data) if isinstance(data, tuple) else [np.asarray(data)]


@pytest.mark.parametrize("name", APPLICATIONS)
def test_data_and_gradients_come_out_as_before(name):
    application = APPLICATIONS[name]
    parameters = np.array(application.initial_parameters())
    found = {
        "sizes": [
            application.num_examples,
            application.num_parameters,
            *map(application.size, range(3)),
            application.weight(1),
        ]
    }
    found["parameters"] = parameters
    rng = np.random.default_rng(1)
    later = np.abs(parameters + rng.normal(size=parameters.shape).astype(np.float32) / 10) + np.float32(0.01)
    for partition, clock in ((0, 0), (1, 3), (2, 8)):
        found[f"data {partition}"] = arrays(application.data(partition))
        found[f"gradient {partition}"] = [application.gradient(own, partition, clock) for own in (parameters, later)]
        if name != "classes":
            rows, loss = application.row_gradient(later, partition, clock)
            found[f"rows {partition}"] = [
                rows.rows,
                rows.values,
                rows.dense(len(later)),
                loss,
                application.row_width,
                application.weight_decay_center,
            ]
    whole = type(application).at_scale(1e-3, num_partitions=2, seed=1)
    found["scaled"] = repr(whole)
    found["too many partitions"] = outcome(replace, application, num_partitions=500)
    assert_kept(KEPT / f"{name}.json", found)


@pytest.mark.parametrize("name", FILES)
def test_files_are_read_as_before(name, tmp_path):
    read, texts = FILES[name]
    found = {}
    for number, text in enumerate(texts):
        path = tmp_path / str(number)
        path.write_text(text)
        told = outcome(read, str(path))
        found[str(number)] = told.replace(str(tmp_path), "") if isinstance(told, str) else told
    kinds = {"ratings": MatrixFactorisation, "examples": LogisticRegression, "bags": TopicModel}
    own = kinds[name].from_file(str(tmp_path / "0"), num_partitions=2, seed=3)
    parameters = np.array(own.initial_parameters())
    found["own"] = [
        own.num_examples,
        own.num_parameters,
        [arrays(own.data(k)) for k in (0, 1)],
        own.gradient(np.abs(parameters) + 1, 1, 0),
    ]
    assert_kept(KEPT / f"file-{name}.json", found)
