"""`optim instance`, `optim solvers`, `optim info`, and the help."""

import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.cli.parameters import FORMATS
from optim.models.files import load, save
from optim.workloads.admission.generator import GeneratorOptions as AdmissionOptions
from optim.workloads.auction.generator import GeneratorOptions as AuctionOptions
from optim.workloads.bidding.generator import GeneratorOptions as BiddingOptions
from optim.workloads.profiles import profiled_instance, published_profiles
from optim.workloads.traces.formats import DEFAULT_FORMAT, TRACE_FORMATS
from optim.workloads.traces.job_table import CLUSTER_NAMES

SIZES = ["--jobs", "8", "--slots", "6", "--worker-servers", "2", "--ps-servers", "2"]


@pytest.fixture(autouse=True)
def folder(dummies, tmp_path, monkeypatch):
    """Register the dummy solvers, and change to an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_generates_an_instance_of_the_sizes_given(folder):
    result = run("instance", "generate", "admission", *SIZES, "--seed", "1", "--out", "i.json")
    assert result.exit_code == 0
    assert result.stdout == ""
    instance = load(folder / "i.json")
    assert (instance.num_jobs, instance.horizon) == (8, 6)
    assert (instance.worker_servers.num_servers, instance.ps_servers.num_servers) == (2, 2)


@pytest.mark.parametrize("problem", ["admission", "auction", "bidding"])
def test_generated_jobs_are_of_the_kinds_of_a_profile(folder, problem):
    kinds = published_profiles()
    options = {
        "admission": [*SIZES, "--instance-option", "slot_s=60"],
        "auction": ["--apps", "3", "--gpus", "8", "--machines", "2"],
        "bidding": ["--instance-option", "days=2"],
    }
    own = {
        "admission": AdmissionOptions(num_jobs=8, num_slots=6, num_worker_servers=2, num_ps_servers=2, slot_s=60.0),
        "auction": AuctionOptions(num_apps=3, num_gpus=8, num_machines=2),
        "bidding": BiddingOptions(days=2),
    }
    asked = ["--profile", "published", *options[problem], "--seed", "5", "--out", "i.json"]
    assert run("instance", "generate", problem, *asked).exit_code == 0
    save(profiled_instance(problem, kinds, own[problem], 5), folder / "expected.json")
    assert (folder / "i.json").read_bytes() == (folder / "expected.json").read_bytes()


def test_a_profile_that_is_not_there_is_named_once():
    result = run("instance", "generate", "admission", "--profile", "nowhere.json")
    assert result.exit_code == 2
    assert result.stderr.count("nowhere.json") == 1
    assert result.stderr.count("\n") == 1


def test_the_same_seed_gives_the_same_file(folder):
    for name, seed in (("a.json", "1"), ("b.json", "1"), ("c.json", "2")):
        run("instance", "generate", "admission", *SIZES, "--seed", seed, "--out", name)
    texts = [(folder / name).read_bytes() for name in ("a.json", "b.json", "c.json")]
    assert texts[0] == texts[1] != texts[2]


def test_prints_the_instance_if_no_file_is_named():
    result = run("instance", "generate", "admission", *SIZES)
    assert json.loads(result.stdout)["schema"] == "optim/admission/1"
    assert "seed 0" in result.stderr


def test_converts_an_instance_file_to_another_name(folder):
    assert run("instance", "convert", "admission", "tiny-0", "--out", "plain.json").exit_code == 0
    assert run("instance", "convert", "plain.json", "--out", "packed.json.gz").exit_code == 0
    assert (folder / "packed.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert load(folder / "packed.json.gz").jobs.ids == load(folder / "plain.json").jobs.ids


def test_describes_an_instance():
    row = json.loads(run("instance", "describe", "tiny-0", "--format", "json").stdout)
    assert row["problem"] == "admission"
    assert row["name"] == "tiny-0"
    assert row["jobs"] == 6
    assert "tiny-0" in run("instance", "describe", "admission", "tiny-0").stdout


def test_instances_meet_the_schema_that_is_printed():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(run("instance", "schema", "admission").stdout)
    document = json.loads(run("instance", "convert", "tiny-0").stdout)
    jsonschema.validate(document, schema)
    document["jobs"][0]["colour"] = "red"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)


def test_lists_solvers_with_their_options():
    rows = [json.loads(line) for line in run("solvers", "--format", "json").stdout.splitlines()]
    (idle,) = [row for row in rows if row["solver"] == "idle"]
    assert idle == {
        "problem": "admission",
        "solver": "idle",
        "summary": "admits nobody",
        "options": {"wait_s": 0.0, "number": 1},
    }
    assert "wait_s=0, number=1" in run("solvers", "admission").stdout


def test_info_names_versions_devices_solvers_and_suites():
    row = json.loads(run("info", "--format", "json").stdout)
    assert row["versions"]["mlcluster-optim"]
    assert row["devices"]
    assert "idle" in row["problems"]["admission"]
    assert "admission" in row["suites"]
    assert "tiny-0" in row["instances"]


@pytest.mark.parametrize("command", [[], ["bench"], ["solve"], ["verify"], ["solvers"], ["info"], ["instance"]])
def test_every_command_explains_itself(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Usage: optim" in result.stdout


def test_says_its_version():
    assert run("--version").stdout.startswith("optim ")


def test_the_command_starts_without_loading_anything_heavy():
    script = "import sys, optim.cli.main; print([m for m in HEAVY if m in sys.modules])"
    heavy = ["numpy", "scipy", "jax", "numba", "pandas", "matplotlib", "pyomo", "cvxpy", "highspy"]
    command = [sys.executable, "-c", f"HEAVY = {heavy}; {script}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_describes_what_was_read_of_a_price_list_and_what_was_left_out(folder):
    entry = {
        "AvailabilityZone": "z",
        "InstanceType": "p3.2xlarge",
        "SpotPrice": "0.9",
        "Timestamp": "2024-01-01T00:00:00Z",
    }
    (folder / "prices.json").write_text(json.dumps({"SpotPriceHistory": [entry]}))
    result = run("instance", "describe", "prices.json", "--format", "json")
    assert result.exit_code == 0, result.output
    row = json.loads(result.stdout)
    assert (row["provider"], row["machine"], row["place"], row["product"]) == (
        "Amazon",
        "p3.2xlarge",
        "z",
        "Linux/UNIX",
    )
    assert run("instance", "describe", "prices.json").exit_code == 0
    assert run("instance", "describe", "bidding", "prices.json").exit_code == 0
    other = run("instance", "describe", "admission", "prices.json")
    assert (other.exit_code, other.stdout) == (2, "")
    assert "prices.json is a price list, for 'bidding', not for 'admission'; omit the problem's name" in other.stderr


def test_a_trace_without_a_format_is_a_table_of_ones_own_and_its_partitions_have_any_name(tmp_path):
    rows = "submit,gpus,duration,partition\n0,1,900,a\n60,1,900,b\n"
    (tmp_path / "mine.csv").write_text(rows)
    words = ["instance", "convert", "--trace", str(tmp_path / "mine.csv"), "--slots", "4"]
    for name in CLUSTER_NAMES:
        out = tmp_path / f"{name}.json"
        done = CliRunner().invoke(app, [*words, "--instance-option", f"{name}=a", "--out", str(out)])
        assert done.exit_code == 0, done.stderr
        assert load(out).num_jobs == 1
    both = CliRunner().invoke(app, [*words, "--instance-option", "vc=a", "--instance-option", "partition=a"])
    assert "vc and partition mean the same; give one of them" in both.stderr


def test_help_names_every_format_of_traces():
    assert set(re.findall(r"[a-z]+", FORMATS)) - {"the", "default", "or"} == set(TRACE_FORMATS)
    assert FORMATS.startswith(f"{DEFAULT_FORMAT} (the default)")
