"""Forecast files: written files are read back, and contradictory ones are rejected in one line with the cause."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.admission.forecast import Forecast, is_forecast, read_forecast, without_jobs
from tests.support.admission.tiny import job_document, tiny_instance

DAY = tiny_instance(job_document("a"), job_document("b", arrival=1))


def known(instance=DAY):
    shape = (1, instance.horizon, 2)
    prices = np.arange(1.0, 1.0 + 2 * instance.horizon).reshape(shape)
    return Forecast(
        cluster=without_jobs(instance), days=(instance,), fill=0.5, worker_price=prices, ps_price=2 * prices
    )


@pytest.fixture
def document(tmp_path: Path) -> dict:
    known().save(tmp_path / "f.json")
    return json.loads((tmp_path / "f.json").read_text())


@pytest.mark.parametrize("name", ["f.json", "f.json.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    before = known()
    before.save(tmp_path / name)
    after = read_forecast(tmp_path / name)
    assert is_forecast(tmp_path / name)
    np.testing.assert_array_equal(after.worker_price, before.worker_price)
    np.testing.assert_array_equal(after.ps_price, before.ps_price)
    assert (after.fill, after.num_days, after.days[0].jobs.ids) == (0.5, 1, ("a", "b"))
    assert after.cluster.num_jobs == 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d["worker_price"][0][1].__setitem__(0, -1.0), "worker_price must hold finite prices of at least 0"),
        (lambda d: d["ps_price"][0].pop(), "ps_price must list classes, slots and resources of shape"),
        (lambda d: d["ps_price"][0][0].pop(), "ps_price must have one price per class, slot and resource"),
        (lambda d: d.__setitem__("fill", 0), "fill"),
        (lambda d: d.__setitem__("schema", "optim/forecast/2"), "schema must be"),
        (lambda d: d["days"][0].__setitem__("schema", "optim/auction/1"), "cluster and days must be"),
        (lambda d: d["days"][0].__setitem__("resources", ["gpu", "tpu"]), "resources"),
        (lambda d: d["days"][0].__setitem__("slot_s", 20), "slots of 20 s"),
        (lambda d: d["days"][0].__setitem__("horizon", 3), "has 3 slots"),
        (lambda d: d["days"].clear(), "days must hold at least one day"),
    ],
)
def test_what_contradicts_itself_is_refused_in_one_line(tmp_path: Path, document: dict, change, text: str) -> None:
    change(document)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidProblemError, match=text) as caught:
        read_forecast(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e-9, 1e308])
def test_prices_that_are_no_prices_are_refused(bad: float) -> None:
    prices = known().worker_price.copy()
    prices[0, 0, 0] = bad
    with pytest.raises(InvalidProblemError, match="worker_price must hold finite prices"):
        replace(known(), worker_price=prices)


@pytest.mark.parametrize("read", [is_forecast, read_forecast])
@pytest.mark.parametrize("text", ["", '{"schema": "optim/fore', "NaN"])
def test_a_file_that_is_no_json_is_named(tmp_path: Path, read, text: str) -> None:
    path = tmp_path / "cut.json"
    path.write_text(text)
    with pytest.raises(InvalidProblemError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
