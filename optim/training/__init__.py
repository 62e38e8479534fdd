"""Elastic training: a small trainer on reliable and transient machines, which may join, leave or fail during a run.

A controller (`controller`) instructs machines (`machine`) by messages over a transport (`transport`, `processes`): to
compute gradients, to serve parameters, and to store copies. Machines apply gradients by the kernels of
`optim.kernels.parameter_server`.
"""
