"""The suites, one per file; a file ends with `register_suite(BenchSpec(...))`, or a function that calls it."""
