"""Default signal handlers, as in a program that runs in a terminal, however the tests were started."""

DEFAULT_SIGNALS = """
import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""
"""First lines of a program: a background job, or one of `nohup`, ignores these, and so would its children."""
