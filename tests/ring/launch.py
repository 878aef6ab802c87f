"""Starting ranks, and finding one of them again."""

import os
import pathlib
import subprocess
import time
import uuid

# Open MPI refuses root and more ranks than cores unless told otherwise. Ranks
# that wait leave the core to others.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


class Job:
    """An mpirun, its output, and its ranks."""

    def __init__(self, command: list[str]) -> None:
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            command,
            env=os.environ | ENVIRONMENT | {"LOCUS_RING_JOB": self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def find_rank(self, rank: int) -> int | None:
        """The process id of a rank, if it runs."""
        wanted = {
            f"LOCUS_RING_JOB={self.mark}".encode(),
            f"OMPI_COMM_WORLD_RANK={rank}".encode(),
        }
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                    return int(folder.name)
            except OSError:
                continue
        return None

    def wait_until_busy(self, rank: int, seconds: float) -> int:
        """The process id of a rank once it has computed for so long."""
        tick = os.sysconf("SC_CLK_TCK")
        while self.process.poll() is None:
            pid = self.find_rank(rank)
            if pid is not None:
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().split()
                if int(fields[13]) / tick >= seconds:
                    return pid
            time.sleep(0.1)
        raise RuntimeError(f"the job ended early: {self.process.communicate()}")

    def finish(self, seconds: float) -> tuple[int, str, str]:
        """Exit code, output and errors; a job that hangs raises TimeoutExpired."""
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, out, err


def mpirun(ranks: int, command: list[str], options: tuple[str, ...] = ()) -> list[str]:
    """The command line that runs `command` on so many ranks."""
    return ["mpirun", "-n", str(ranks), *options, *command]
