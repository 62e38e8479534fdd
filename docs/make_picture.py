"""Draw docs/admission.png: an online day's arrivals, decisions and prices.

Run it with ``python docs/make_picture.py`` from anywhere; the same figure opens notebooks/admission.ipynb.
"""

from pathlib import Path

from optim.report.admission import draw_run, watch
from optim.workloads.admission.generator import GeneratorOptions, generate

DAY = GeneratorOptions(num_jobs=60, num_slots=24, num_worker_servers=8, num_ps_servers=8)
"""A day of hours on a small cluster."""

SEED = 2


def main() -> None:
    """Draw the picture beside this script."""
    instance = generate(DAY, SEED)
    draw_run(instance, watch(instance)).savefig(Path(__file__).with_name("admission.png"))


if __name__ == "__main__":
    main()
