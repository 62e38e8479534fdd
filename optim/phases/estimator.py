"""Parameters by name, with the conventions of scikit-learn."""

import inspect
from typing import Any, Self

from optim.core.errors import InvalidOptionError


class Estimator:
    """A model whose parameters are the keywords of its constructor, kept under their own names.

    The constructor keeps them as they are given; whatever uses them checks them.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; none of them has parameters of its own, so that `deep` changes nothing."""
        del deep
        return {
            name: getattr(self, name) for name in inspect.signature(type(self).__init__).parameters if name != "self"
        }

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name.

        Raises
        ------
        InvalidOptionError
            If there is no such parameter.
        """
        known = self.get_params()
        for name, value in parameters.items():
            if name not in known:
                raise InvalidOptionError(f"unknown parameter {name!r}; {type(self).__name__} knows: {', '.join(known)}")
            setattr(self, name, value)
        return self
