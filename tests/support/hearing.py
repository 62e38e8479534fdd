"""Ends that a test's command hears, however the tests were started."""

HEARING = """
import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""
"""First lines of a program: a background job, or one of `nohup`, begins deaf to these, and so would its children."""
