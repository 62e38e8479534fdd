"""Elastic training: tiers of reliability, and a small trainer that loses no work when machines come and go.

A controller (`controller`) instructs machines (`machine`) over a transport (`machine.Transport`, `processes`) to compute,
serve and store. The machines apply gradients by the kernels of `optim.kernels.parameter_server`.
"""
