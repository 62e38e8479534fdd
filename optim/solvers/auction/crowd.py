"""All agents of an auction together, for who can answer for many of them at once."""

from collections.abc import Sequence
from typing import Generic, TypeVar, overload

import numpy as np

from optim.models.auction.instance import Cluster, FloatArray, IntArray
from optim.solvers.auction.agent import Agent, Bid, Offer

AgentT = TypeVar("AgentT", bound=Agent)


class Crowd(Sequence[AgentT], Generic[AgentT]):
    """Agents, in their order; this one asks each of them.

    Parameters
    ----------
    agents
        The agents.
    """

    def __init__(self, agents: Sequence[AgentT]) -> None:
        self._agents = agents

    def __len__(self) -> int:
        return len(self._agents)

    @overload
    def __getitem__(self, index: int) -> AgentT: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[AgentT]: ...

    def __getitem__(self, index: int | slice) -> AgentT | Sequence[AgentT]:
        return self._agents[index]

    @property
    def names(self) -> Sequence[str]:
        """Names of all, unique."""
        return [agent.name for agent in self._agents]

    @property
    def gangs(self) -> IntArray:
        """What the GPUs of each come in."""
        return np.array([agent.gang for agent in self._agents], np.int64)

    def wanted(self) -> IntArray:
        """Return how many GPUs each can use beside those it holds."""
        return np.array([agent.wanted() for agent in self._agents], np.int64)

    def rho(self, cluster: Cluster) -> FloatArray:
        """Return the present finish-time fairness of each."""
        return np.array([agent.rho(cluster) for agent in self._agents], np.float64)

    def bids(self, who: Sequence[int], offer: Offer) -> list[Bid]:
        """Return the bids of some on an offer."""
        return [self[i].bid(offer) for i in who]
