"""Elastic training: tiers of reliability, and a small trainer that loses nothing when machines come and go.

A controller (`controller`) tells machines (`machine`) over a transport (`machine.Transport`, `processes`) what to compute,
serve and keep. The machines apply gradients by the kernels of `optim.kernels.parameter_server`.
"""
