"""Make ``python -m optim.cli`` the same as ``optim``."""

from optim.cli.main import main

if __name__ == "__main__":
    main()
