"""Where instances come from: calibrated generators, named stress instances, public traces."""
