"""One test scheduler in a folder of its own, for the tests of the scheduler itself."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any, Callable, Dict, List, NamedTuple, Optional

HERE = os.path.dirname(os.path.abspath(__file__))
# Far more than anything takes: reaching it means that it does not happen.
PATIENCE = 60.0

Record = Dict[str, Any]


class Ran(NamedTuple):
    """What a client left."""

    code: int
    out: str
    err: str


def until(what: str, is_so: Callable[[], Any]) -> Any:
    """Waits for something to be so, and returns it."""
    end = time.monotonic() + PATIENCE
    while True:
        found = is_so()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"waited for ever until {what}")
        time.sleep(0.01)


class Scheduler:
    """A running scheduler with a user's home and a folder to work in."""

    def __init__(self, **config: Any) -> None:
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="pbs-"))
        self.home = os.path.join(self.folder, "pbs")
        self.work = os.path.join(self.folder, "w")
        for name in (self.home, self.work, os.path.join(self.folder, "home")):
            os.mkdir(name)
        self.environment = {
            "PATH": f"{HERE}/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": os.path.join(self.folder, "home"),
            "TEST_PBS_HOME": self.home,
            "TZ": "UTC",
        }
        self._config: Dict[str, Any] = {}
        self.config(**{"json": "new", "kill_delay": 0.3, "walltime_poll": 0.05, "cycle": 0.01, **config})
        self.process = subprocess.Popen(
            [sys.executable, f"{HERE}/server"],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            universal_newlines=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def config(self, **changes: Any) -> None:
        """Changes the configuration of the running scheduler."""
        self._config.update(changes)
        path = os.path.join(self.home, "config.json")
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(self._config, file)
        os.replace(path + ".new", path)

    def close(self) -> None:
        """Ends it, and waits for that."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        self.process.stdout.close()
        shutil.rmtree(self.folder)

    def call(self, *words: str, **more: str) -> Ran:
        """Runs a client to its end, with more variables."""
        ran = subprocess.run(
            words,
            env={**self.environment, **more},
            cwd=self.work,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    def qsub(self, *words: str) -> str:
        """Submits what must be taken, and returns its identifier."""
        ran = self.call("qsub", *words)
        assert ran.code == 0 and ran.err == "", ran
        return ran.out.strip()

    def shell(self, code: str, *options: str) -> str:
        """Submits a line of shell."""
        return self.qsub(*options, "--", "/bin/sh", "-c", code)

    def records(self, *names: str) -> Dict[str, Record]:
        """What qstat has on jobs, elements included, history as well."""
        ran = self.call("qstat", "-x", "-t", "-f", "-F", "json", *names)
        found: Dict[str, Record] = json.loads(ran.out).get("Jobs", {})
        return found

    def record(self, name: str) -> Record:
        """One job or element."""
        return self.records(name)[name]

    def ended(self, name: str) -> Record:
        """The same, once it is history."""

        def is_history() -> Optional[Record]:
            found = self.records(name).get(name)
            return found if found is not None and found["job_state"] == "F" else None

        found: Record = until(f"{name} has ended", is_history)
        return found

    def comment(self, name: str) -> str:
        """Waits for what the scheduler has to say of a job."""
        found: str = until(f"{name} has a comment", lambda: self.record(name).get("comment"))
        return found

    def in_state(self, name: str, state: str) -> None:
        """Waits for a state."""
        until(f"{name} is {state}", lambda: self.records(name).get(name, {}).get("job_state") == state)

    def write(self, name: str, text: str) -> None:
        """A file in the folder of work."""
        with open(os.path.join(self.work, name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name: str) -> str:
        """The same, read."""
        with open(os.path.join(self.work, name), encoding="utf-8") as file:
            return file.read()

    def exists(self, name: str) -> bool:
        """Whether it is there."""
        return os.path.exists(os.path.join(self.work, name))

    def has(self, name: str) -> None:
        """Waits for a file."""
        until(f"{name} is there", lambda: self.exists(name))

    def written(self, name: str) -> str:
        """Waits for a line in a file, and returns it."""
        self.has(name)
        found: str = until(f"{name} is written", lambda: self.read(name))
        return found

    def files(self) -> List[str]:
        """What is in the folder of work."""
        return sorted(os.listdir(self.work))


class Case(unittest.TestCase):
    """A test with a scheduler of its own."""

    maxDiff = None
    settings: Dict[str, Any] = {}

    def setUp(self) -> None:
        self.pbs = Scheduler(**self.settings)
        self.addCleanup(self.pbs.close)

    def gate(self, code: str, *options: str) -> str:
        """A job that waits until it may go on."""
        return self.pbs.shell(f"cd $PBS_O_WORKDIR; until [ -e go ]; do sleep 0.01; done; {code}", *options)

    def go(self) -> None:
        """Lets it go on."""
        self.pbs.write("go", "")

    def last(self, code: str, *options: str) -> str:
        """An array of four whose element 3 goes on only after all others have ended."""
        waits = "test $PBS_ARRAY_INDEX != 3 || until [ -e go ]; do sleep 0.01; done"
        return self.pbs.shell(f"cd $PBS_O_WORKDIR; {waits}; {code}", "-J", "0-3", *options)

    def go_last(self, array: str) -> None:
        """Lets it go on when they have."""
        until("three have ended", lambda: "Expired:3" in self.pbs.record(array)["array_state_count"])
        self.go()
