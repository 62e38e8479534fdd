"""Running a list of work: no losses, no duplicates; failures are records."""

import re
from types import SimpleNamespace

import pytest
from dummy_suite import SPEC

from optim.benchmarks import runner
from optim.benchmarks.compare import Change
from optim.benchmarks.measuring import Meter
from optim.benchmarks.records import read_records
from optim.benchmarks.runner import WorkList, plan_work, run_work
from optim.benchmarks.suite import BenchRequest, SolveWork, Subject
from optim.core.errors import InvalidOptionError
from optim.core.stopping import Interruption
from optim.execution import ProcessExecutor
from optim.models.reference import reference_instance


@pytest.fixture
def path(tmp_path):
    """The path of a results file that doesn't exist yet."""
    return tmp_path / "bench.jsonl"


def plan(*solvers, seeds=(0,), time_limit_s=None, **options):
    request = BenchRequest(solvers=solvers, seeds=seeds, time_limit_s=time_limit_s, options=options)
    return plan_work([SPEC], request).work


def run(work, path, **arguments):
    return list(run_work(work, path, **arguments))


class Counting:
    """Count the solves of a solver."""

    def __init__(self, monkeypatch):
        from optim.benchmarks.suite import SolveWork

        self.solved = []
        attempt = SolveWork.attempt

        def counted(work, stop, progress):
            self.solved.append((work.subject.name, work.solver, work.seed))
            return attempt(work, stop, progress)

        monkeypatch.setattr(SolveWork, "attempt", counted)


def test_verifies_and_stores_a_record_for_each_piece(dummies, path):
    records = run(plan("idle", seeds=(0, 1)), path)
    assert [(record.instance, record.seed) for record in records] == [
        (f"tiny-{number}", seed) for number in range(3) for seed in (0, 1)
    ]
    assert all(record.verified and record.has_answer for record in records)
    assert read_records(path) == records


class CountedWork:
    """Work that counts how often its key is read."""

    reads = 0

    def __init__(self, number):
        self.number = number

    @property
    def key(self):
        CountedWork.reads += 1
        return str(self.number)


def test_records_are_sorted_without_a_scan_of_the_list_for_each(dummies):
    count = 2000
    work = tuple(CountedWork(number) for number in range(count))
    listed = WorkList(specs=(), request=BenchRequest(), work=work, skipped=())
    records = [SimpleNamespace(key=str(number)) for number in reversed(range(0, count, 2))]
    assert [record.key for record in listed.in_order(records)] == [str(number) for number in range(0, count, 2)]
    assert CountedWork.reads == count


def test_a_record_says_what_was_asked_for_and_what_came_out(dummies, path):
    record = run(plan("idle", number=7), path)[0]
    assert record.suite == "dummy"
    assert record.options == {"wait_s": 0.0, "number": 7}
    assert record.labels == {"number": 0}
    assert set(record.seconds) == {"build", "compile", "solve", "verify"}
    assert record.seconds["verify"] > 0
    assert 0 < record.run_s <= record.wall_s
    assert record.processor_s > 0
    with Meter() as empty:
        pass
    assert (record.memory_mb is None) == (empty.memory_mb is None), "known wherever it can be in this process"
    assert record.memory_mb is None or record.memory_mb >= 0
    assert record.decision_ms["count"] == 6
    assert record.decision_ms["median"] == pytest.approx(0.35)
    assert record.load["rejected_jobs"] == 1.0
    assert record.parameters["jobs"] == 6
    assert record.machine["cpu_count"] >= 1
    assert "mlcluster-optim" in record.versions
    assert record.code
    assert record.finished


def test_lists_equal_work_once(dummies):
    assert len(plan("idle", "idle", seeds=(0, 0))) == 3


def test_runs_nothing_again_that_the_file_holds(dummies, path, monkeypatch):
    first = run(plan("idle"), path)
    counting = Counting(monkeypatch)
    assert run(plan("idle"), path) == first
    assert counting.solved == []


def test_runs_only_what_is_new(dummies, path, monkeypatch):
    run(plan("idle"), path)
    counting = Counting(monkeypatch)
    assert len(run(plan("idle", seeds=(0, 1)), path)) == 6
    assert {seed for _, _, seed in counting.solved} == {1}
    assert len(read_records(path)) == 6


def test_resumes_after_a_kill_without_loss_or_double(dummies, path, monkeypatch):
    run(plan("idle"), path)
    path.write_bytes(path.read_bytes()[:-30])
    counting = Counting(monkeypatch)
    records = run(plan("idle"), path)
    assert counting.solved == [("tiny-2", "idle", 0)]
    assert sorted(record.key for record in read_records(path)) == sorted(record.key for record in records)
    assert len({record.key for record in records}) == 3


@pytest.mark.parametrize("changed", [{"seeds": (1,)}, {"time_limit_s": 5.0}, {"number": 2}])
def test_another_seed_limit_or_option_is_other_work(dummies, changed):
    assert {piece.key for piece in plan("idle")}.isdisjoint(piece.key for piece in plan("idle", **changed))


def test_an_option_given_as_its_default_is_the_same_work(dummies):
    assert [piece.key for piece in plan("idle")] == [piece.key for piece in plan("idle", number=1)]


def test_makes_records_anew_when_told_not_to_resume(dummies, path, monkeypatch):
    run(plan("idle", seeds=(5,)), path)
    run(plan("idle"), path)
    counting = Counting(monkeypatch)
    run(plan("idle"), path, is_resumed=False)
    assert len(counting.solved) == 3
    assert len(read_records(path)) == 6


def test_makes_records_of_other_code_anew(dummies, path, monkeypatch):
    run(plan("idle"), path)
    monkeypatch.setattr(runner, "code_digest", lambda: "another")
    counting = Counting(monkeypatch)
    run(plan("idle"), path)
    assert len(counting.solved) == 3
    assert len(read_records(path)) == 3


def test_goes_on_after_a_solver_that_raises_and_tries_it_again_next_time(dummies, path, monkeypatch):
    records = run(plan("crash", "idle"), path)
    assert [record.verified for record in records] == [False, True] * 3
    assert records[0].termination == "numerical_error"
    assert re.fullmatch(
        r"RuntimeError: a fault in a foreign solver of two lines \(dummy_solvers\.py:\d+ in solve\)", records[0].error
    )
    assert not records[0].is_refused
    counting = Counting(monkeypatch)
    run(plan("crash", "idle"), path)
    assert {solver for _, solver, _ in counting.solved} == {"crash"}
    assert len(read_records(path)) == 6


def test_keeps_what_the_checker_refused_with_the_rows_named(dummies, path):
    record = run(plan("liar"), path)[0]
    assert record.is_refused
    assert "objective" in record.violations[0]


def test_leaves_no_record_of_interrupted_work(dummies, path):
    stop = Interruption()
    records = run_work(plan("idle"), path, stop=stop)
    first = next(records)
    stop.request()
    assert list(records) == []
    assert read_records(path) == [first]


def test_a_solve_that_is_asked_to_stop_leaves_no_record(dummies, path, monkeypatch):
    stop = Interruption()
    monkeypatch.setattr("dummy_solvers.time.sleep", lambda seconds: stop.request())
    assert run(plan("idle", wait_s=60), path, stop=stop) == []
    assert read_records(path) == []


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.prove)])
def test_other_processes_give_the_same_records_and_outlive_one_that_dies(dummies, path, processes):
    """The last process dies, so that no other is started; two continue after it."""
    idle, (_, dies, _) = plan("idle"), plan("die")
    work = [*idle, dies] if processes == 1 else [*idle[:1], dies, *idle[1:]]
    records = run(work, path, engine=ProcessExecutor(processes))
    assert len(read_records(path)) == 4
    died = [record for record in records if record.solver == "die"]
    assert [record.error for record in died] == ["its process ended with exit code 9"]
    alone = {record.key: record.bound for record in run(plan("idle"), path.with_name("alone.jsonl"))}
    assert {record.key: record.bound for record in records if record.solver == "idle"} == alone


def test_refuses_a_bad_option_before_anything_runs(dummies, path):
    with pytest.raises(InvalidOptionError, match="wait_s must be at least 0"):
        run(plan("idle", wait_s=-1), path)
    assert not path.exists()


def test_refuses_a_size_that_the_suite_lacks():
    with pytest.raises(InvalidOptionError, match="has no size 'huge'; it has: small"):
        plan_work([SPEC], BenchRequest(size="huge"))


def test_refuses_instances_that_the_suite_does_not_take():
    with pytest.raises(InvalidOptionError, match="accepts no other instances"):
        plan_work([SPEC], BenchRequest(sources=()))


def test_a_golden_row_that_the_request_asks_for_and_nobody_ran_is_missing(dummies, path):
    listed = plan_work([SPEC], BenchRequest(solvers=("idle",)))
    golden = run(listed.work, path)
    changes = [difference.change for difference in listed.compare(golden[:-1], golden)]
    assert changes == [Change.SAME, Change.SAME, Change.MISSING]


def test_a_request_with_a_price_from_a_file_goes_by_what_is_in_it(tmp_path):
    def key(price):
        subject = Subject(reference_instance("tiny-0"))
        return SolveWork(suite=None, subject=subject, solver="online", options={"price": price}).key

    path = tmp_path / "mine.py"
    path.write_text("class Mine:\n    pass\n")
    first, usual = key(f"{path}:Mine"), key("exponential")
    path.write_text("class Mine:\n    size = 3\n")
    assert key(f"{path}:Mine") != first
    assert key("exponential") == usual
