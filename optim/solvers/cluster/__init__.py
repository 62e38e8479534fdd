"""What no schedule of a cluster can beat: prices of GPU-seconds, loads and intervals that prove it."""
