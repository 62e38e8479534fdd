"""Users' data files: written data is read back, and messages name the wrong line."""

import gzip

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.training.applications import LogisticRegression, MatrixFactorisation, TopicModel
from optim.training.applications.generated import read_bags, read_examples, read_ratings

RATINGS = "userId,movieId,rating,timestamp\n7,30,4.5,1\n3,30,2,2\n7,10,1,3\n3,20,5,4\n"
BAGS = "3\n4\n4\n1 1 2\n1 4 1\n3 2 5\n2 2 1\n"
EXAMPLES = "1 1:0.5 3:2\n-1 2:1e-1\n# a remark\n1 3:1\n"


@pytest.mark.parametrize("mark", [",", "\t", "::", " ", ";"])
def test_ratings_are_numbered_by_name_and_sorted(tmp_path, mark):
    path = tmp_path / "ratings.csv"
    path.write_text(RATINGS.replace(",", mark))
    users, items, values = read_ratings(str(path))
    assert users.tolist() == [0, 0, 1, 1]
    assert items.tolist() == [1, 2, 0, 2]
    assert values.tolist() == [5.0, 2.0, 1.0, 4.5]


def test_examples_are_dense_and_classes_in_the_order_of_labels(tmp_path):
    path = tmp_path / "train.libsvm.gz"
    path.write_bytes(gzip.compress(EXAMPLES.encode()))
    values, classes = read_examples(str(path))
    np.testing.assert_allclose(values, [[0.5, 0, 2], [0, 0.1, 0], [0, 0, 1]])
    assert classes.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("kind", "text", "number"), [(MatrixFactorisation, RATINGS, 4), (LogisticRegression, EXAMPLES, 3)]
)
def test_few_examples_have_a_partition_each(tmp_path, kind, text, number):
    path = tmp_path / "data.txt"
    path.write_text(text)
    assert kind.from_file(str(path)).num_partitions == number
    with pytest.raises(InvalidOptionError, match=f"{number} examples can't be cut into 8 partitions"):
        kind.from_file(str(path), num_partitions=8)


@pytest.mark.parametrize(("labels", "classes"), [("012", 3), ("2102", 3), ("11", 2), ("0123", 4)])
def test_there_are_as_many_classes_as_labels_and_two_at_least(labels, classes, tmp_path):
    path = tmp_path / "train.libsvm"
    path.write_text("".join(f"{label} 1:1\n" for label in labels))
    own = LogisticRegression.from_file(str(path), num_partitions=1)
    assert (own.num_classes, own.num_features, own.num_observations) == (classes, 1, len(labels))


def test_bags_count_words_by_document(tmp_path):
    path = tmp_path / "docword.txt"
    path.write_text(BAGS)
    assert read_bags(str(path)).tolist() == [[2, 0, 0, 1], [0, 1, 0, 0], [0, 5, 0, 0]]


@pytest.mark.parametrize(
    ("kind", "text"), [(MatrixFactorisation, RATINGS), (LogisticRegression, EXAMPLES), (TopicModel, BAGS)]
)
def test_partitions_hold_all_examples_once_and_gradients_descend(tmp_path, kind, text):
    path = tmp_path / "data.txt"
    path.write_text(text)
    own = kind.from_file(str(path), num_partitions=2)
    parts = [own.data(0), own.data(1)]
    if kind is MatrixFactorisation:
        columns = [np.concatenate(column).tolist() for column in zip(*parts, strict=True)]
        assert columns == [[0, 0, 1, 1], [1, 2, 0, 2], [5, 2, 1, 4.5]]
    elif kind is LogisticRegression:
        assert np.array_equal(np.concatenate([values for values, _ in parts]), read_examples(str(path))[0])
    else:
        assert np.array_equal(np.concatenate(parts), read_bags(str(path)))
    w = own.initial_parameters()
    rate = np.float32(1.0 if kind is TopicModel else 0.1)
    losses = []
    for clock in range(20):
        found = [own.gradient(w, partition, clock) for partition in range(2)]
        losses.append(sum(loss for _, loss in found))
        weights = [own.weight(partition) for partition in range(2)]
        w = w - rate * np.average([gradient for gradient, _ in found], axis=0, weights=weights).astype(np.float32)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("read", "text", "cause"),
    [
        (read_ratings, "1,2,3\n1,2\n", "line 2: expected user item rating"),
        (read_ratings, "1,2,nan\n", "line 1: .*finite"),
        (read_ratings, "user,item,rating\n", "no ratings"),
        (read_ratings, "alice film1 4.5x\nbob film2 five\ncarol film1 3\n", "line 2: expected user item rating"),
        (read_examples, "1 0:2\n", "indices from 1"),
        (read_examples, "1 2\n", "line 1: expected label index:value"),
        (read_examples, "", "no examples"),
        (read_bags, "1\n2\n3\n1 1 1\n", "1 pairs, but the header states 3"),
        (read_bags, "0\n2\n0\n", "give document word count"),
        (read_bags, "2\n0\n0\n", "give document word count"),
        (read_bags, "1\n2\n1\n2 1 1\n", "documents up to 1"),
        (read_bags, "one\n", "line 1: expected document word count"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, read, text, cause):
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(InvalidProblemError, match=cause):
        read(str(path))


def test_no_file_and_no_text_are_said_so(tmp_path):
    with pytest.raises(InvalidProblemError, match="name a file"):
        read_ratings(str(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidProblemError, match="UTF-8"):
        read_bags(str(tmp_path / "binary"))
