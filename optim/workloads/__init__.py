"""Where instances come from: calibrated generators, public traces."""
