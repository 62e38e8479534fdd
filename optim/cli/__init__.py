"""The `optim` command: one module per sub-command. The modules parse arguments, call the library and print; the logic is in the library."""
