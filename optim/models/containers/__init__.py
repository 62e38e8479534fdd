"""Resource consumption of containers: series of any number of named resources, of any lengths."""

from optim.models.containers.series import ContainerSeries as ContainerSeries
from optim.models.containers.series import Resource as Resource
