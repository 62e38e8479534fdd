"""Jobs with a deadline over several zones: the market on a grid of ticks, a job's launches and moves, and the least cost's checker."""
