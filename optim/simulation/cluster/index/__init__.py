"""Index policies in one compiled loop: jobs run in the order of a key."""
