"""Plans on real servers, improved move by move: jobs are taken out (ruin) and inserted again (re-create)."""
