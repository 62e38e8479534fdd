"""Whether bundles find room on the tree of GPUs, and where."""
