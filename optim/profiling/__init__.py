"""What a training script of one's own calls to be profiled; nothing but the standard library is needed."""

from optim.profiling.step_timer import StepTimer as StepTimer
