"""Measuring jobs: the step timer of a custom training script, timing, fitting, and the job profile.

A training script needs `StepTimer` alone, which imports nothing but the standard library.
"""

from optim.profiling.step_timer import StepTimer as StepTimer
