"""Studies: one file per study, registered as suites of `optim bench` through the entry-point group of plug-ins."""
