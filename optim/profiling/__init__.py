"""Measuring jobs: the step timer for a user's training script, timing, fitting, and the job profile.

A training script needs only `StepTimer`, which imports nothing but the standard library.
"""

from optim.profiling.step_timer import StepTimer as StepTimer
