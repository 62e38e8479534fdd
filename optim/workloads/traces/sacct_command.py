"""The command with which Slurm prints jobs, in a separate module so that help loads fast."""

COMMAND = (
    "sacct -a -P -S now-30days --format=JobID,User,Account,QOS,Partition,Submit,Start,End,ElapsedRaw,Timelimit,ReqTRES,"
    "AllocTRES,State,Priority,NodeList"
)
"""Command that prints all columns read here, of all users' jobs of the last 30 days."""
