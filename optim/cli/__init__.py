"""The `optim` command: one module per sub-command. They parse, call the library and print; the logic is in the library."""
