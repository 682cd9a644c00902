"""What `Sweep.submit` returns: jobs that call a function, and how to wait for them or to cancel them."""

import json
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, List, Optional

from .program import SweepError, find, output_of
from .record import Record

if TYPE_CHECKING:
    from .sweep import Sweep

TARGETS = ("auto", "slurm", "pbs", "local")
# States of a trial that runs again only on request.
FINAL = ("done", "failed", "timeout", "skipped", "cancelled", "lost")
# How often `wait` asks, seconds; a scheduler is asked less often.
GLANCE = 0.2
GLANCE_OF_JOBS = 5.0


class Submission:
    """Jobs of a sweep. `jobs` are their ids; of "local" there are none, and `log` is where the processes write."""

    def __init__(self, sweep: "Sweep", target: str, workers: int, processes: int, retry: bool):
        self._sweep = sweep
        self._local = None  # type: Optional[subprocess.Popen]
        self.jobs = []  # type: List[str]
        self.log = None  # type: Optional[str]
        options = ["--retry"] if retry else []
        if target == "local":
            self._start_here(["--slots", str(workers * processes), *options])
            return
        options += ["--workers", str(workers), "--slots", str(processes)]
        options += ["--" + target] if target != "auto" else []
        said = _say(["submit", sweep.plan, "--pull", *options])
        self.jobs = [job for line in re.findall(r"^jobs: (.*)$", said, re.MULTILINE) for job in line.split()]

    def __repr__(self) -> str:
        return "Submission(%r, jobs=%r)" % (self._sweep.plan, self.jobs)

    def _start_here(self, options: List[str]) -> None:
        """Processes that outlive this one."""
        self.log = self._sweep.plan[: -len(".toml")] + ".log"
        with open(self.log, "ab") as log:
            self._local = subprocess.Popen(
                [find(), "submit", self._sweep.plan, "--local", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def done(self) -> bool:
        """Whether all trials have ended."""
        return self._left() == 0

    def _left(self) -> int:
        # No process runs trials that another submission has dropped from the sweep.
        over = FINAL + ("dropped",)
        return len([record for record in self._sweep.results() if record.state not in over])

    def _has_jobs(self) -> bool:
        """Whether there are jobs or processes that run trials, or may be."""
        if self._local is not None and self._local.poll() is None:
            return True
        asked = subprocess.run(
            [find(), "status", "--json", self._sweep.plan[: -len(".toml")]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        if not asked.stdout:
            # Unknown. The next question may have an answer.
            return self._local is None
        status = json.loads(asked.stdout.decode())
        is_unknown = bool(self.jobs) and "not asked" in status["witness"]
        return is_unknown or bool(status["pilots"]) or status["counts"].get("running", 0) > 0

    def wait(self, timeout: Optional[float] = None) -> List[Record]:
        """Waits until all trials have ended, and returns their records, as `Sweep.results`.

        timeout: seconds, after which it is a TimeoutError. Jobs that have ended before all trials are a SweepError.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = GLANCE if self._local is not None else GLANCE_OF_JOBS
        glance, absent = GLANCE, 0
        while True:
            # Before the results: jobs that have ended have recorded everything.
            absent = 0 if self._has_jobs() else absent + 1
            left = self._left()
            if left == 0:
                return self._sweep.results()
            if absent > 2:
                where = self.log or os.path.join(self._sweep.plan[: -len(".toml")], "logs", "jobs")
                sentence = "the jobs have ended, and %d trials are left\nhint: %s says why; submit again"
                raise SweepError(sentence % (left, where))
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError("%d trials have not ended after %g s" % (left, timeout or 0))
            time.sleep(glance)
            glance = min(glance * 1.5, pause)

    def cancel(self) -> None:
        """Takes back what has not ended."""
        output_of(["cancel", self._sweep.plan[: -len(".toml")]])


def _say(args: List[str]) -> str:
    """The program's standard error, which is printed too; an error is a SweepError with its message."""
    ran = subprocess.run([find(), *args], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = ran.stderr.decode(errors="replace")
    if ran.returncode != 0:
        words = said.strip()
        at = words.find("error: ")
        raise SweepError(words[at + 7 :] if at >= 0 else words)
    sys.stderr.write(said)
    return said
