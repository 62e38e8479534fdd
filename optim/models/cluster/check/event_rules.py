"""What logs are read by: numbers of events, and the error of the first that breaks a rule. The checker's own."""

START, PREEMPT, END, LEAVE, CRASH, FAIL, REPAIR, FAULT, GIVE_UP = range(9)
NOBODY = -1
PPM = 1_000_000


class BrokenEventError(Exception):
    """An event breaks a rule."""
