"""`optim simulate`: simulations of policies, one sub-command per simulation."""

import typer

from optim.cli import simulate_cluster, simulate_containers, simulate_packing, simulate_spot, simulate_training

app = typer.Typer(name="simulate", help="Run policies in a simulation.", no_args_is_help=True)


@app.callback()
def simulate() -> None:
    """Run policies in a simulation."""


app.command("cluster")(simulate_cluster.cluster)
app.command("spot")(simulate_spot.spot)
app.command("training")(simulate_training.training)
app.command("containers")(simulate_containers.containers)
app.command("packing")(simulate_packing.packing)
