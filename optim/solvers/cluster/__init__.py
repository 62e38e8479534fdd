"""Lower bounds for all schedules of a cluster, proven by prices of GPU-seconds, loads and intervals."""
