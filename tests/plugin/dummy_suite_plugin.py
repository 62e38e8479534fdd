"""What a third party's package does: importing it registers its suite."""

from dummy_suite import SPEC

from optim.benchmarks.suite import register_suite

register_suite(SPEC)
