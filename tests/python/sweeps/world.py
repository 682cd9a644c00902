"""A folder of its own for one test, and programs that run there with the module and the program under test."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MODULE = ROOT / "site" / "python"
PROGRAM = os.environ.get("HPCSWEEP_BIN") or str(ROOT / "target" / "debug" / "hpcsweep")
# Far more than anything takes, seconds: reaching it means that it does not happen.
PATIENCE = 120

sys.path.insert(0, str(MODULE))


class Ran:
    """What a program left."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __str__(self):
        return "exit code %s\n%s%s" % (self.code, self.out, self.err)


class World(unittest.TestCase):
    """A test with a temporary folder, which is the current one of what it starts."""

    def setUp(self):
        if not os.access(PROGRAM, os.X_OK):
            self.fail("there is no %s: `cargo build`, or set HPCSWEEP_BIN" % PROGRAM)
        self.folder = Path(tempfile.mkdtemp(prefix="hpcsweep-py-"))
        self.addCleanup(shutil.rmtree, str(self.folder), ignore_errors=True)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("HPCSWEEP")}
        self.environment.update(
            HPCSWEEP_BIN=PROGRAM, PYTHONPATH=str(MODULE), HOME=str(self.folder), PYTHONDONTWRITEBYTECODE="1"
        )
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "SLURM_JOB_ID", "PBS_JOBID"):
            self.environment.pop(name, None)

    def write(self, name, text):
        """Writes a file of the folder."""
        (self.folder / name).write_text(text)

    def start(self, script, *args, interrupt=signal.SIG_DFL, **options):
        """Starts a Python program, in a session of its own."""
        ran = subprocess.Popen(
            [sys.executable, script, *args],
            cwd=str(self.folder),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            start_new_session=True,
            # Tests that run in the background of a shell inherit an interrupt that is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, interrupt),
            **options
        )
        self.addCleanup(kill_session, ran.pid)
        return ran

    def end(self, process, timeout=PATIENCE):
        """Waits for its end."""
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            kill_session(process.pid)
            out, err = process.communicate()
            self.fail("it does not end\n%s%s" % (out, err))
        return Ran(process.returncode, out, err)

    def run_script(self, script, *args):
        """Runs a Python program to its end."""
        return self.end(self.start(script, *args))

    def python(self, text, code=0):
        """Runs the text of a program, and expects this exit code."""
        self.write("program.py", text)
        ran = self.run_script("program.py")
        self.assertEqual(ran.code, code, str(ran))
        return ran

    def call(self, *args, code=0):
        """What hpcsweep itself prints."""
        ran = self._called(args)
        self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
        return ran.stdout

    def refused(self, *args):
        """What hpcsweep says when it refuses a request."""
        ran = self._called(args)
        self.assertEqual(ran.returncode, 2, ran.stdout + ran.stderr)
        return ran.stderr

    def _called(self, args):
        return subprocess.run(
            [PROGRAM, *args],
            cwd=str(self.folder),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )

    def records(self, place):
        """The trials of a sweep as the program tells of them."""
        return [json.loads(line) for line in self.call("collect", "--format", "records", place).split("\n") if line]

    def lines(self, name):
        """The lines of a file of the folder, none if it is not there."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


def session(number):
    """The processes of a session."""
    found = []
    for folder in os.listdir("/proc"):
        try:
            with open("/proc/%s/stat" % folder) as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if int(fields[3]) == number and fields[0] != "Z":
            found.append(int(folder))
    return found


def kill_session(number, but=()):
    """kill -9 to all of a session at once."""
    for pid in session(number):
        if pid not in but:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


# For programs of tests: a line of a file by one write(2), so that lines of many processes do not mix.
NOTE = """
import os

def note(name, *words):
    fd = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, (" ".join(map(str, words)) + "\\n").encode())
    os.close(fd)
"""
