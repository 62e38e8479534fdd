"""What the auction's solvers and the arbiter do under their options, against a record: see `tests.support.golden`."""

import numpy as np
import pytest

import optim
from optim.models.auction.codec import MachineDocument, cluster_from_documents
from optim.solvers.auction.mechanism import Arbiter, ArbiterOptions, ProfileAgent
from optim.workloads.auction.generator import GeneratorOptions, draw_profiles
from tests.support.auction.all_forms import auctions_of_all_forms
from tests.support.golden import check

OPTIONS = {
    "exact": ({}, {"payments": "closed", "rule": "nearest"}, {"main_nodes": 2, "payment_nodes": 1, "rule": "ceil"}),
    "greedy": ({}, {"moves": 0, "rule": "lottery"}),
}


def solved(solver):
    """Solve all auctions under each of a solver's options."""
    return [
        optim.solve(one, solver, options=options, seed=1)
        for options in OPTIONS[solver]
        for one in auctions_of_all_forms()
    ]


def held():
    """Hold rounds of several agents, fair ones and open ones, one after the other on what is left."""
    where = cluster_from_documents([MachineDocument(rack=rack, slots=[2, 2], count=3) for rack in (0, 1)])
    options = GeneratorOptions(num_apps=7, num_gpus=where.num_gpus, num_machines=where.num_machines)
    profiles = draw_profiles(options, where, np.random.default_rng(4))
    found = []
    for fairness in (0.0, 0.5, 0.8):
        agents = [ProfileAgent(f"a{i}", profile) for i, profile in enumerate(profiles)]
        arbiter = Arbiter(ArbiterOptions(fairness=fairness))
        for number in range(3):
            found.append(arbiter.hold(where, agents, seed=number, round_number=number))
            found.append([agent.rho(where) for agent in agents])
            for k, agent in enumerate(agents):
                agent.hold(where, [(slot, 1) for slot in range(k, 12, 7)] if number else [])
                agent.advance(5.0 * k, 3.0)
                found += [agent.profile, agent.wanted(), agent.gang, agent.places]
    return found


RUNS = {name: lambda name=name: solved(name) for name in OPTIONS} | {"rounds": held}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/auction", name, RUNS[name])
