"""Instances made from instances: the same problem in other units, other names, or with more capacity."""

from collections.abc import Callable, Sequence
from decimal import Decimal

from msgspec import UNSET

from optim.models.admission.codec import (
    AdmissionDocument,
    ConstantDocument,
    ServerClassDocument,
    SigmoidDocument,
    StepDocument,
    TableDocument,
    document_from_instance,
)
from optim.models.admission.instance import AdmissionInstance, instance_from_document

Row = list[Decimal]


def with_scaled_values(instance: AdmissionInstance, factor: float) -> AdmissionInstance:
    """Multiply every utility, and every absolute minimum utility, by a factor."""
    document = document_from_instance(instance)
    for job in document.jobs:
        match job.utility:
            case SigmoidDocument() as f:
                job.utility = SigmoidDocument(theta1=f.theta1 * factor, theta2=f.theta2, theta3=f.theta3)
            case ConstantDocument() as f:
                job.utility = ConstantDocument(f.value * factor)
            case StepDocument() as f:
                job.utility = StepDocument(f.value * factor, f.max_delay, f.late_value * factor)
            case TableDocument() as f:
                job.utility = TableDocument([value * factor for value in f.table])
        if job.min_utility is not UNSET:
            job.min_utility *= factor
    return instance_from_document(document)


def with_scaled_resource(instance: AdmissionInstance, resource: int, factor: int) -> AdmissionInstance:
    """State one resource in a unit that is `factor` times smaller."""

    def scaled(row: Row) -> Row:
        return [quantity * factor if r == resource else quantity for r, quantity in enumerate(row)]

    document = document_from_instance(instance)
    for job in document.jobs:
        for part in [job] if job.segments is UNSET else job.segments:
            part.worker, part.ps = scaled(part.worker), scaled(part.ps)
    return instance_from_document(_with_capacities(document, scaled))


def with_more_room(instance: AdmissionInstance, amount: Decimal) -> AdmissionInstance:
    """Add an amount to the capacity of every server, for every resource."""
    return instance_from_document(
        _with_capacities(document_from_instance(instance), lambda row: [quantity + amount for quantity in row])
    )


def with_reversed_servers(instance: AdmissionInstance) -> AdmissionInstance:
    """Number the server classes backwards."""
    document = document_from_instance(instance)
    for name in ("worker_servers", "ps_servers", "shared_servers"):
        servers = getattr(document, name)
        if servers is not UNSET:
            setattr(document, name, servers[::-1])
    return instance_from_document(document)


def _with_capacities(document: AdmissionDocument, change: Callable[[Row], Row]) -> AdmissionDocument:
    for servers in (document.worker_servers, document.ps_servers, document.shared_servers):
        if servers is not UNSET:
            _change_capacities(servers, change)
    return document


def _change_capacities(servers: Sequence[ServerClassDocument], change: Callable[[Row], Row]) -> None:
    for server in servers:
        if isinstance(server.capacity[0], list):
            server.capacity = [change(row) for row in server.capacity if isinstance(row, list)]
        else:
            server.capacity = [*change([quantity for quantity in server.capacity if not isinstance(quantity, list)])]
