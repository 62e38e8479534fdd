"""A user's training script is run, timed and fitted; the examples predict points outside the fit."""

import importlib.util
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError, InvalidProblemError, NotAllowedError
from optim.core.progress import SilentProgress
from optim.core.stopping import Interruption
from optim.profiling.commands import Steps, measured, profile_command, run_script, script_profile
from optim.profiling.document import SCHEMA, ProfileDocument
from optim.profiling.fitting import MODELS, choose_model, speedups, steps_per_second
from optim.profiling.job_profile import ProfileOptions
from optim.workloads.admission.generator import GeneratorOptions as AdmissionOptions
from optim.workloads.profiles import admission_instance

EXAMPLES = Path(__file__).parents[2] / "examples"

SCRIPT = """
import sys, time
from optim.profiling import StepTimer
timer = StepTimer(model=[0.0] * 1000, samples=64, batch=8, epochs=3)
for step in range(8):
    with timer:
        time.sleep(0.001)
"""


def steps(seconds, **fields):
    """The measurements of a process, as `StepTimer` writes them."""
    known = {"schema": "optim/steps/1", "alone_s": [], "started_at": 105.0, "model_bytes": 2_000_000, "wall_s": 10.0}
    return Steps(seconds=seconds, host_bytes=3_000_000_000, **{**known, **fields})


def test_the_slowest_process_makes_the_step_and_warm_up_is_told_apart():
    run = measured([steps([9.0, 2, 2, 1, 2, 3]), steps([5.0, 2, 2, 2, 1, 3, 9])], 2, 100.0)
    assert run.step.seconds.tolist() == [2.0, 2.0, 3.0]
    assert run.warmup_s == 13.0 - 3 * 2.0
    assert run.startup_s == 5.0


def test_a_scripts_profile_has_its_bytes_work_and_speed():
    def run(workers, seconds):
        told = steps(
            [seconds] * 6,
            alone_s=[seconds / 2] * 6,
            samples=100,
            batch=8,
            epochs=5.0,
            devices=2,
            network_bytes=10**7,
            device="a card",
        )
        return measured([told], workers, 100.0)

    found = script_profile("mine", "x", [run(w, 4.0 / w + 1.0) for w in (1, 2, 4)], ProfileOptions())
    assert found.usage.model == "compute and fixed"
    assert (found.device, found.worker.gpu) == ("a card", 2.0)
    assert [c.value for c in found.speed.coefficients] == pytest.approx([4.0, 1.0, 0, 0, 0])
    assert [point.speedup for point in found.scaling] == pytest.approx([1.0, 5 / 3, 2.5])
    assert (found.minibatch_s.value, found.usage.alone_s) == (5.0, 2.5)
    assert (found.gradient_mb, found.epochs, found.minibatches, found.samples) == (2.0, 5.0, 13, 100)
    assert (found.worker.gpu, found.worker.memory_gb) == (2.0, 3.0)
    assert found.startup_min == pytest.approx(5 / 60)
    assert found.usage.network_mbps == pytest.approx(8.0)
    assert found.placement.cluster > found.placement.rack > 1.0


@pytest.mark.parametrize("name", [name for name in MODELS if len(MODELS[name]) < 3])
def test_the_model_that_made_the_times_is_chosen(name):
    w = np.array([1.0, 2.0, 4.0])
    terms = {0: 1 / w, 1: np.ones(3), 3: w}
    truth = [2.0, 0.5]
    seconds = sum(value * terms[column] for value, column in zip(truth, MODELS[name], strict=False))
    chosen, speed = choose_model([1, 2, 4], seconds.tolist())
    assert chosen == name
    assert 1 / steps_per_second(speed, np.array([3.0]), np.ones(1)) == pytest.approx(
        sum(value * {0: 1 / 3, 1: 1.0, 3: 3.0}[column] for value, column in zip(truth, MODELS[name], strict=False))
    )


@given(st.lists(st.floats(0.01, 10), min_size=2, max_size=6))
def test_every_choice_has_fewer_coefficients_than_points(seconds):
    name, speed = choose_model(range(1, len(seconds) + 1), seconds)
    assert len(MODELS[name]) < len(seconds)
    assert sum(c.value > 0 for c in speed.coefficients) <= len(MODELS[name])


def test_one_number_of_workers_tells_no_speed():
    with pytest.raises(InvalidProblemError, match="at least 2 numbers of workers"):
        choose_model([2, 2], [1.0, 1.0])


@pytest.mark.parametrize(
    ("command", "workers", "cause"),
    [
        ("python train.py", [1, 2], "must contain {workers}"),
        ("x {workers}", [2, 4], "must include 1 and other numbers"),
        ("x {workers} 'y", [1, 2], "can't be split into words"),
    ],
)
def test_refuses_what_tells_no_speed(command, workers, cause):
    with pytest.raises(InvalidOptionError, match=cause):
        profile_command(command, workers, ProfileOptions(), name="x", stop=Interruption(), progress=SilentProgress())


def test_a_script_is_run_and_its_last_words_are_told_when_it_fails(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    run = run_script(f"{sys.executable} {script}", 1, Interruption())
    assert len(run.step.seconds) == 5
    assert 0.001 <= run.step.median < 1
    script.write_text("raise SystemExit('no data')")
    with pytest.raises(NotAllowedError, match="ended with code 1: no data"):
        run_script(f"{sys.executable} {script}", 1, Interruption())
    with pytest.raises(NotAllowedError, match=r"timed 0 steps, .* call optim.profiling.StepTimer"):
        run_script(f"{sys.executable} -c pass", 1, Interruption())
    with pytest.raises(InvalidOptionError, match="can't be run"):
        run_script("/none/train", 1, Interruption())
    script.write_text("import os; open(os.environ['OPTIM_PROFILE_FOLDER'] + '/1.json', 'w').write('{')")
    with pytest.raises(NotAllowedError, match="wrote a file that isn't from this release's StepTimer"):
        run_script(f"{sys.executable} {script}", 1, Interruption())


@pytest.mark.prove
def test_a_script_that_hangs_is_ended_and_the_option_named(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + "\ntime.sleep(600)\n")
    with pytest.raises(NotAllowedError, match=r"reported no step for 3 s and was ended; .*--option patience_s=N"):
        run_script(f"{sys.executable} {script}", 1, Interruption(), patience_s=3.0)


def is_gone(process):
    """Return whether a process ends; the system may take a moment to report it."""
    for _ in range(1000):
        try:
            if Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_a_stopped_script_ends_with_all_that_it_started(tmp_path):
    """Workers of a launcher, and processes that ignore the first signal, are no orphans."""
    script = tmp_path / "launch.sh"
    script.write_text(
        f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/worker; echo > {tmp_path}/begun; wait; sleep 600"
    )
    stop = Interruption()

    def ask():
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        stop.request()

    asker = threading.Thread(target=ask)
    asker.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("optim.profiling.commands.GRACE_S", 0.2)
        with pytest.raises(NotAllowedError, match="interrupted while"):
            run_script(f"sh {script}", 1, stop)
    asker.join()
    assert is_gone(int((tmp_path / "worker").read_text()))


def test_what_a_script_leaves_behind_ends_with_it(tmp_path):
    script = tmp_path / "launch.sh"
    script.write_text(f"sleep 600 & echo $! > {tmp_path}/worker; exit 1")
    with pytest.raises(NotAllowedError, match="ended with code 1"):
        run_script(f"sh {script}", 1, Interruption())
    assert is_gone(int((tmp_path / "worker").read_text()))


def test_the_fastest_of_several_rounds_counts(monkeypatch):
    took = iter([4.0, 2.5, 9.0, 2.0, 6.0, 1.5])
    order = []

    def run(command, count, stop, **_):
        order.append(count)
        return measured([steps([next(took)] * 6)], count, 100.0)

    monkeypatch.setattr("optim.profiling.commands.run_script", run)
    found = profile_command(
        "x {workers}", [1, 2, 4], ProfileOptions(rounds=2), name="x", stop=Interruption(), progress=SilentProgress()
    )
    assert order == [1, 2, 4, 1, 2, 4]
    assert [point.speedup for point in found.scaling] == pytest.approx([1.0, 2 / 2.5, 2 / 1.5])


def test_a_profile_tells_the_jobs_name_and_the_command_that_was_measured(monkeypatch):
    monkeypatch.setattr(
        "optim.profiling.commands.run_script",
        lambda command, count, stop, **_: measured([steps([1.0] * 6)], count, 100.0),
    )
    found = profile_command(
        "train {workers}", [1, 2], ProfileOptions(), name="mine", stop=Interruption(), progress=SilentProgress()
    )
    assert (found.name, found.source) == ("mine", "measured by 'train {workers}'")


class Hand:
    """A clock that computations advance."""

    now = 0.0

    def __call__(self):
        return self.now

    def moving(self, work, seconds_of):
        """Return a function that does the same work, and advances the clock."""

        def moved(*words, **named):
            self.now += seconds_of(*words)
            return work(*words, **named)

        return moved


BATCH, GRADIENT_S, BESIDES_S = 64, 0.010, 0.090


def example_in_hand(framework, monkeypatch):
    """Return an example's module and its clock: the gradient of a full batch takes 10 ms, the rest of a step 90."""
    pytest.importorskip(framework)
    path = EXAMPLES / f"train_{framework}.py"
    spec = importlib.util.spec_from_file_location(f"own_train_{framework}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    clock = Hand()
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=clock, process_time=clock))
    if framework == "jax":
        gradient_s = lambda model, samples, labels: GRADIENT_S * len(samples) / BATCH  # noqa: E731 - three words
        monkeypatch.setattr(module, "gradient_of", clock.moving(module.gradient_of, gradient_s))
        monkeypatch.setattr(module, "apply", clock.moving(module.apply, lambda *words: BESIDES_S))
    else:
        torch = module.torch
        loss_s = lambda found, labels: GRADIENT_S * len(labels) / BATCH  # noqa: E731 - three words
        monkeypatch.setattr(torch.nn.functional, "mse_loss", clock.moving(torch.nn.functional.mse_loss, loss_s))
        monkeypatch.setattr(torch, "no_grad", clock.moving(torch.no_grad, lambda: BESIDES_S))
    return module, clock


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_jobs_of_the_examples_take_as_long_as_is_planned(framework, monkeypatch, tmp_path):
    module, clock = example_in_hand(framework, monkeypatch)
    monkeypatch.setattr("atexit.register", lambda call: None)

    def run(workers, num_steps):
        folder = tmp_path / f"{workers}-{num_steps}"
        folder.mkdir()
        monkeypatch.setenv("OPTIM_PROFILE_FOLDER", str(folder))
        words = ["x", "--workers", workers, "--steps", num_steps, "--batch", BATCH]
        monkeypatch.setattr(sys, "argv", list(map(str, words)))
        begun = clock.now
        module.main()
        (path,) = folder.iterdir()
        return measured([msgspec.json.decode(path.read_bytes(), type=Steps)], workers, 0.0), clock.now - begun

    profile = script_profile("mine", "x", [run(workers, 20)[0] for workers in (1, 2, 4)], ProfileOptions())
    assert profile.usage.alone_s == pytest.approx(GRADIENT_S)
    _, realised_s = run(1, 200)
    document = ProfileDocument(schema=SCHEMA, jobs=[profile])
    sizes = AdmissionOptions(num_jobs=1, num_slots=200, num_worker_servers=8, num_ps_servers=8, slot_s=1.0)
    instance = admission_instance(document, sizes, 0)
    jobs = instance.jobs
    planned_s = float(jobs.epochs[0] * jobs.chunks[0] * instance.chunk_slots[0])
    # The example makes 200 passes over eight mini-batches.
    assert jobs.epochs[0] * jobs.chunks[0] * jobs.minibatches[0] == 1600
    assert planned_s == pytest.approx(8 * realised_s, rel=0.15)
    # On two workers the gradient takes half as long, and all else as long as before.
    two_s = GRADIENT_S / 2 + BESIDES_S
    assert planned_s / speedups(profile, 2)[1] == pytest.approx(1600 * two_s, rel=0.15)


@pytest.mark.prove
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_example_predicts_three_workers_from_one_two_and_four(framework):
    """By the processor time of one thread: seconds on the wall are also other work's.

    Even so, a core that is shared for a while computes more slowly, so only one of three measurements has to agree.
    """
    if importlib.util.find_spec(framework) is None or importlib.util.find_spec(framework).origin is None:
        pytest.skip(f"{framework} isn't installed")
    command = f"{sys.executable} {EXAMPLES / f'train_{framework}.py'} --processor-time --workers {{workers}}"
    found = []
    for _ in range(3):
        predicted, measured_s = predicted_and_measured(framework, command)
        found.append(predicted / measured_s)
        if abs(found[-1] - 1) <= 0.15:
            return
    raise AssertionError(f"predicted over measured seconds, three times: {found}")


def predicted_and_measured(framework, command, known=(1, 2, 4)):
    """Return a step's seconds on three workers, from those on one, two and four, and from a direct run."""
    runs = {
        workers: run_script(command.replace("{workers}", str(workers)), workers, Interruption())
        for workers in (*known, 3)
    }
    profile = script_profile(framework, command, [runs[workers] for workers in known], ProfileOptions())
    assert len(MODELS[profile.usage.model]) < len(known)
    return 1 / steps_per_second(profile.speed, np.array([3.0]), np.ones(1))[0], runs[3].step.median
