"""What the auction generator draws with every option changed, compared with what is kept."""

from pathlib import Path

from optim.workloads.auction.generator import GeneratorOptions, generate
from tests.support.kept import assert_kept, outcome, short
from tests.support.variants import option_variants

KEPT = Path(__file__).parent / "kept"
TINY = {"num_apps": 6, "num_gpus": 16, "num_machines": 4, "contention": 2.0}
MORE = [
    {"held_share": 0.3}, {"slots_per_machine": 2, "num_gpus": 32}, {"gangs": "elastic"}, {"gangs": "any"}, {"sizes": "dividing"}, {"contention": 9.0, "gangs": "elastic"}, {"widest": "rack"},
    {"widest": "machine"}, {"bids": "named"}, {"horizon": "lease"}, {"empty_value": "zero"}, {"network_share": 1.0}, {"new_share": 1.0},
    {"num_machines": 40, "num_gpus": 80}, {"held_share": 0.5, "bids": "named"},
]  # fmt: skip


def test_draws_with_every_option_changed():
    found = {}
    for what, given in [*option_variants(GeneratorOptions, **TINY), *((str(one), {**TINY, **one}) for one in MORE)]:
        drawn = outcome(lambda options=given: generate(GeneratorOptions(**options), 3))
        found[what] = drawn if isinstance(drawn, str) else short(drawn)
    assert_kept(KEPT / "draws.json", found)
