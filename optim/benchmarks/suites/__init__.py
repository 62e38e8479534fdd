"""The suites, one file each: a file builds work, and ends with `register_suite(BenchSpec(...))`."""
