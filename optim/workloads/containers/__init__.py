"""Resource usage of containers: generated with known phases, or read from files and from Prometheus."""

from optim.workloads.containers.csv_files import read_containers as read_containers
from optim.workloads.containers.generator import PHASE_NAMES as PHASE_NAMES
from optim.workloads.containers.generator import ContainerOptions as ContainerOptions
from optim.workloads.containers.generator import generate_containers as generate_containers
from optim.workloads.containers.prometheus import read_prometheus as read_prometheus
