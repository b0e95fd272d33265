"""The batch script for Slurm: it starts Ray on the nodes of its job, launches the run there, and requeues itself.

Before its time is over Slurm signals the script, which asks the run to save and end after its step, and puts the job back into
the queue; the run then goes on from that checkpoint. Nothing is requeued that finished, failed or was stopped by hand.

The script starts the head and the workers itself. `ray symmetric-run` of Ray 2.60 would do it in one line, but exits with 0 if
Ray does not start, refuses a node on which another Ray is running, and at its end stops all of them (`ray stop`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlctl.cluster.machines import Machines
from rlctl.common import quoting
from rlctl.documents.yaml_write import comment_line


@dataclass(frozen=True)
class Batch:
    """The inputs of a Slurm script."""

    run: str
    """Name of the run."""
    folder: str
    """Its folder, on a disk that all nodes share."""
    machines: Machines
    launch: Sequence[str]
    """The words of the command that launches the run."""
    directory: str
    """Where that command is called."""
    path: str
    """Folder of the programs ``rlctl`` and ``ray``."""
    seconds: float | None = None
    """How long the run may take in one job; None is as long as the partition lets it."""
    grace: int = 600
    """Seconds that the run has to end its step and save."""
    memory: str = "0"
    """Of each node; 0 is all of it.

    Without it Slurm gives a job a default by its cores, which is too little for most models.
    """
    options: Sequence[str] = ()
    """Further options of sbatch, as ``--partition=gpu``."""
    setup: Sequence[str] = ()
    """Lines before anything is started, as ``module load cuda``."""
    authenticate: bool = True
    """Whether Ray asks for a token, so that other users of the nodes cannot use it."""


def script(batch: Batch) -> str:
    """The text of the script."""
    machines = batch.machines
    directives = [
        f"--job-name={re.sub(r'[^A-Za-z0-9._-]', '_', batch.run)}",
        f"--nodes={machines.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={machines.cpus_per_node}",
        f"--mem={batch.memory}",
        *([f"--gpus-per-node={machines.gpus_per_node}"] if machines.gpus_per_node else []),
        *([f"--time={duration(batch.seconds + batch.grace)}"] if batch.seconds is not None else []),
        f"--signal=B:USR1@{batch.grace}",
        "--requeue",
        "--open-mode=append",
        *batch.options,
    ]
    ray = f"--num-cpus={machines.worker_cpus} --num-gpus={machines.gpus_per_node}"
    return _SCRIPT.format(
        head=comment_line(f"Run {batch.run} on {machines}. Written by `rlctl cluster slurm`; submit it with sbatch."),
        directives="\n".join(f"#SBATCH {directive}" for directive in directives),
        path=quoting.word(batch.path),
        directory=quoting.word(batch.directory),
        setup="".join(f"{line}\n" for line in batch.setup),
        folder=quoting.word(batch.folder),
        token=_TOKEN if batch.authenticate else "",
        ray=ray,
        launch=quoting.command(batch.launch),
    )


def duration(seconds: float) -> str:
    """Time as Slurm writes it, ``DAYS-HOURS:MINUTES:00``; begun minutes count whole."""
    minutes = math.ceil(seconds / 60)
    days, minutes = divmod(minutes, 24 * 60)
    text = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
    return f"{days}-{text}" if days else text


_TOKEN = """
# Ray requires this token, which other users of the nodes do not have.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$run/ray-token"
(umask 077; mkdir -p "$run"; [ -s "$run/ray-token" ] || od -An -N32 -tx1 /dev/urandom | tr -d ' \\n' > "$run/ray-token")
"""

_SCRIPT = """\
#!/bin/bash
{head}
{directives}
set -u

export PATH={path}:"$PATH"
cd {directory} || exit 1
{setup}
run={folder}
head=${{SLURMD_NODENAME:-$(hostname)}}   # Slurm runs this script on the first node of the job, by the name that Slurm has for it
ip=${{RLCTL_HEAD_IP:-$(hostname -I | cut -d ' ' -f 1)}}
export RAY_ADDRESS="$ip:$((20000 + SLURM_JOB_ID % 10000))"
others=$((SLURM_JOB_NUM_NODES - 1))
{token}
# One Ray for the job, in its own folder: a node may be shared with other jobs, and other users read nothing of this one.
temp=$(mktemp -d "/tmp/ray-$SLURM_JOB_ID-XXXXXX") || exit 1
step=(srun --overlap --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK")
"${{step[@]}}" --nodes=1 --ntasks=1 --nodelist="$head" ray start --head --node-ip-address="$ip" --port="${{RAY_ADDRESS##*:}}" \\
    {ray} --include-dashboard=false --temp-dir="$temp" --disable-usage-stats --block &
ray=$!
trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT
ready=
for _ in $(seq 60); do
    ray health-check --address "$RAY_ADDRESS" > /dev/null 2>&1 && ready=yes && break
    kill -0 "$ray" 2> /dev/null || break
    sleep 2
done
[ -n "$ready" ] || {{ echo "Ray does not answer at $RAY_ADDRESS" >&2; exit 1; }}
if [ "$others" -gt 0 ]; then
    "${{step[@]}}" --nodes="$others" --ntasks="$others" --exclude="$head" \\
        bash -c 'mkdir -p -m 700 "$0" && exec "$@"' "$temp" ray start --address="$RAY_ADDRESS" {ray} --block &
fi

# The run waits for the other nodes. When Slurm says that the time is nearly over, it saves and ends after its step.
{launch} &
launched=$!
asked=
trap 'asked=yes; rlctl runs stop "$run" || kill -INT "$launched"' USR1
while kill -0 "$launched" 2> /dev/null; do
    sleep 1 &
    wait $!                            # returns early when a signal comes
    kill -0 "$ray" 2> /dev/null || {{ echo "Ray has ended on $head" >&2; kill -INT "$launched"; exit 1; }}
done
wait "$launched"
code=$?

# Exit code 3 is a run that ended before its end: at Slurm's signal, at run.time_limit, or because a user stopped it.
if [ "$code" -eq 3 ] && {{ [ -n "$asked" ] || [ ! -e "$run/stop" ]; }}; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""
