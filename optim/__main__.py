"""Make ``python -m optim`` the same as ``optim``."""

from optim.cli.main import main

if __name__ == "__main__":
    main()
