"""Gradients that are infinite or not a number: what becomes of each."""

from optim.core.errors import TrainingError
from optim.training.forms import NonFinite
from optim.training.messages import Pushed


class NonFinitePushes:
    """Remembers which were refused already.

    Parameters
    ----------
    policy
        What becomes of them.
    """

    def __init__(self, policy: NonFinite) -> None:
        self._policy = policy
        self._refused: set[tuple[int, int]] = set()

    def refuses(self, message: Pushed) -> bool:
        """Tell whether a gradient is to be computed again; else it is left out.

        Raises
        ------
        TrainingError
            If the policy is to stop, or what was computed again isn't finite either.
        """
        if self._policy == NonFinite.SKIP:
            return False
        gradient = message.partition, message.clock
        if self._policy == NonFinite.REFUSE and gradient not in self._refused:
            self._refused.add(gradient)
            return True
        again = " again" if gradient in self._refused else ""
        raise TrainingError(
            f"machine {message.machine} computed{again} a gradient or loss that isn't finite, of partition "
            f"{message.partition} at clock {message.clock}; lower the learning rate, look at the data, or set non_finite to "
            "'skip' (optim run --non-finite skip)"
        )
