"""What `optim run AUCTION SOLUTION --rounds N` prints of rounds that were played, and how it ends."""

import json

import pytest

from optim.cli.messages import ExitCode
from optim.cli.output import OutputFormat
from optim.cli.run import RoundChoice, tell_rounds
from optim.simulation.emulation import lease_rounds
from optim.simulation.emulation.job_run import PlanOptions
from optim.simulation.emulation.lease_rounds import AppRow, RoundRow
from tests.simulation.emulation.test_lease_rounds import app, instance_of

INSTANCE = instance_of(app("a", 120.0, 3), app("b", 60.0, 1))


def lease(number, name, planned, realised):
    return RoundRow(
        round=number, app=name, gpus=2, placement="slot", left_min=120.0, planned_min=planned, realised_min=realised,
        error=realised / planned - 1, clocks=7, start_s=1.5 + number,
    )  # fmt: skip


def of_app(name, rho=None, is_exact=True):
    return AppRow(
        app=name, planned_leases=2, realised_leases=2, planned_min=60.0, realised_min=50.0, planned_finish_min=40.0,
        realised_finish_min=rho and 45.0, planned_rho=1.25, realised_rho=rho, is_exact=is_exact,
    )  # fmt: skip


LEASES = [lease(0, "a", 40.0, 30.0), lease(0, "b", 20.0, 20.0), lease(1, "a", 40.0, 40.0)]


@pytest.fixture
def told(monkeypatch, capsys):
    """Play rounds that a test makes up, and return the exit code and what is printed."""

    def tell(apps, output=OutputFormat.JSON, is_stopped=False, leases=tuple(LEASES)):
        asked = {}

        def play(instance, plan, options, rounds, folder, **others):
            asked.update(rounds=rounds, folder=folder, is_there=folder.is_dir())
            return list(leases), apps

        monkeypatch.setattr(lease_rounds, "play_rounds", play)
        choice = RoundChoice(rounds=2, fairness=0.5)
        listening = {"is_stopped": lambda: is_stopped, "on_slot": print}
        code = tell_rounds(INSTANCE, None, PlanOptions(slot_s=6.0, seed=3), choice, listening, output)
        assert (asked["rounds"].rounds, asked["rounds"].fairness, asked["is_there"]) == (2, 0.5, True)
        assert not asked["folder"].exists(), "checkpoints are left behind"
        return code, capsys.readouterr()

    return tell


def test_rows_and_sums_are_told(told):
    code, said = told([of_app("a", rho=1.5), of_app("b")])
    assert code is ExitCode.DONE
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [row["app"] for row in rows] == ["a", "b", "a", "a", "b"]
    assert {(row["instance"], row["seed"]) for row in rows} == {("rounds", 3)}
    assert "a lease of 1200 s lasts 6 s here, 0.005 of it" in said.err
    assert "(2.5 s at most)" in said.err
    assert "round 0: 60 serial GPU minutes planned, 50 realised by 2 apps, 4 GPUs" in said.err
    assert "all leases: 100 serial GPU minutes planned, 90 realised, error -10.0%" in said.err
    assert "1 of 2 apps done, 2 foreseen; largest rho of those done 1.5, foreseen 1.25" in said.err


def test_tables_have_a_title_each(told):
    _, said = told([of_app("a"), of_app("b")], OutputFormat.TABLE)
    assert "serial GPU minutes done in each lease" in said.out
    assert "foreseen from the first" in said.out
    assert "apps done" not in said.err


def test_bits_that_differ_and_whoever_stops_it_show_in_the_exit_code(told):
    code, said = told([of_app("a"), of_app("b", is_exact=False)])
    assert code is ExitCode.REFUSED
    assert "differs from that of an undisturbed run" in said.err
    code, said = told([of_app("a", is_exact=None)], is_stopped=True, leases=())
    assert code is ExitCode.INTERRUPTED
    assert "all leases" not in said.err
