"""Index policies in one compiled loop: jobs run in order of a key."""
