"""Jobs with a deadline over several zones, tick by tick: machines come and go, states move, probes cost."""
