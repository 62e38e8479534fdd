"""What somebody probably meant by a misspelt name."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST = 2
LONGEST = 100
"""Characters of a name that are compared: matching takes time that grows with the square."""


def hint(name: str, known: Iterable[str]) -> str:
    """Return a question that names the nearest of the known names, empty where none is near.

    Examples
    --------
    >>> hint("serach", ["online", "search"])
    'did you mean search? '
    >>> hint("moon", ["online", "search"])
    ''
    """
    near = get_close_matches(name[:LONGEST], list(known), n=MOST)
    return f"did you mean {' or '.join(near)}? " if near else ""
