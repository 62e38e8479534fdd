"""Measurement of training jobs: a step timer for users' scripts, timing, fitting, and job profiles.

A training script needs only `StepTimer`, which imports nothing but the standard library.
"""

from optim.profiling.step_timer import StepTimer as StepTimer
