"""Event simulation of a GPU cluster: policies choose jobs, the engine tracks time, placement and progress."""
