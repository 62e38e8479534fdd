"""A third party's package: importing it registers its suite."""

from dummy_suite import SPEC

from optim.benchmarks.suite import register_suite

register_suite(SPEC)
