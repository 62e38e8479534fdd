"""Studies: one file a study, registered as suites of `optim bench` through the entry-point group of plug-ins."""
