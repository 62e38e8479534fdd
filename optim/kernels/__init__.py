"""JAX kernels, jitted for CPU and GPU: arrays in, arrays out, no I/O."""

if __name__ != "optim.kernels":
    raise ImportError("import this package as optim.kernels: the folder kernels/ at the top is a link for readers")

from optim.core.progress import watch_jax

watch_jax()
