"""What several tests need."""

import os
import pathlib
import shutil
import socket
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def root():
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def program():
    """Runs the program, and returns what it printed."""
    path = os.environ.get("DWELL") or shutil.which("dwell")
    if not path:
        pytest.skip("DWELL names no program to compare with")

    def run(*words, cwd=None):
        done = subprocess.run([path, *map(str, words)], cwd=cwd, capture_output=True, check=True)
        return done.stdout

    return run


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A cluster of Slurm on this machine: a controller and two virtual nodes."""
    for name in ("slurmctld", "slurmd", "sbatch", "munged"):
        if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
            pytest.skip(f"{name} is missing: apt-get install slurmctld slurmd slurm-client munge")
    if os.geteuid() != 0:
        pytest.skip("the daemons of Slurm need root")
    at = tmp_path_factory.mktemp("slurm")
    at.chmod(0o755)
    with Cluster(at) as cluster:
        cluster.wait()
        yield cluster


class Cluster:
    """The daemons, with all that they write in one directory."""

    def __init__(self, at):
        self.at, self.daemons = at, []
        host = socket.gethostname().split(".")[0]
        key, munge = at / "munge.key", at / "munge.socket"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        (at / "state").mkdir()
        ports = [free_port() for _ in range(3)]
        nodes = "".join(
            f"NodeName=n{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[n]} CPUs=1\n" for n in (1, 2)
        )
        (at / "slurm.conf").write_text(
            f"""ClusterName=dwell
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
CredType=cred/munge
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool-%n
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd-%n.pid
SlurmctldLogFile={at}/slurmctld.log
SlurmdLogFile={at}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1
{nodes}PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
        )
        os.environ["SLURM_CONF"] = str(at / "slurm.conf")
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        words = ["--foreground", "--force", f"--key-file={key}", f"--socket={munge}"]
        files = [f"--pid-file={at}/munge.pid", f"--seed-file={at}/munge.seed", f"--log-file={at}/munge.log"]
        self.start("munged", *words, *files)
        wait_until(munge.exists)
        self.start("slurmctld", "-D", "-i")
        for n in (1, 2):
            self.start("slurmd", "-D", "-N", f"n{n}")

    def start(self, *words):
        log = open(self.at / f"{words[0]}.out", "ab")
        self.daemons.append(subprocess.Popen(words, stdout=log, stderr=log))

    def wait(self):
        def are_idle():
            done = subprocess.run(["sinfo", "-h", "-o", "%T %D"], capture_output=True, text=True)
            return "idle 2" in done.stdout

        wait_until(are_idle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def wait_until(is_so, seconds=60):
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            pytest.fail(f"{is_so} did not become true in {seconds} s")
        time.sleep(0.2)
