"""What every machine's process needs, imported once: new processes are forked from one that holds it.

Importing JAX takes most of a second of a core, a fork of what has imported it a hundredth. That is safe for as long as
nothing here starts JAX's backend, whose threads a fork would lose: importing doesn't.
"""

import optim.training.applications
import optim.training.compression
import optim.training.copies
import optim.training.machine
import optim.training.server  # noqa: F401
