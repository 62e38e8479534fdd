"""`make bench-gpu` asks for studies, options and an instance that there are."""

import re
from pathlib import Path

from optim_studies.crbm import CrbmOptions
from optim_studies.kernels.baselines import KernelOptions

import optim
from optim.benchmarks.suite import choose_suites
from optim.cli.parameters import split_options
from optim.core.options import build_options

MAKEFILE = (Path(__file__).parents[2] / "Makefile").read_text()
RECIPE = MAKEFILE[MAKEFILE.index("bench-gpu: ") : MAKEFILE.index("\ntest: ")]


def given(variable):
    words = re.search(rf"^{variable} \?= (.*)$", MAKEFILE, flags=re.MULTILINE).group(1).split()
    return split_options(words)


def test_the_options_exist_and_the_sizes_are_a_gpus():
    kernels = build_options(KernelOptions, given("GPU_KERNELS"))
    crbm = build_options(CrbmOptions, given("GPU_CRBM"))
    assert min(kernels.parameters, kernels.rows * kernels.width) >= 2**28
    assert kernels.skew > 0
    assert (crbm.windows, crbm.machines) == (10_000_000, 64)


def test_the_studies_and_the_instance_exist():
    asked = re.findall(r"optim bench (\w+) --study (\w+)", RECIPE)
    assert [study for _, study in asked] == ["kernels", "crbm", "pricing"]
    for problem, study in asked:
        assert choose_suites((problem,), (study,))
    name = re.search(r"^GPU_PRICING \?= (.*)$", MAKEFILE, flags=re.MULTILINE).group(1)
    assert optim.reference_instance(name).name == name
