"""Plans on real servers, improved by moves: jobs are removed (ruin) and inserted again (re-create), then single units move."""
