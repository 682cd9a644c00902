"""Several processes: what kills one of them, how many there are, and what ends them all."""

import json
import os
import signal
import time
import unittest

from world import NOTE, PATIENCE, World, session

PRELUDE = (
    NOTE
    + """
import hpcsweep, json, signal, sys, time

def show(records):
    print(json.dumps([[r.params["x"], r.state, r.value, r.exit_code, r.signal, r.error] for r in records]))

"""
)


class Pool(World):
    def wait_for(self, name, count):
        """Waits until a file has so many lines."""
        deadline = time.monotonic() + PATIENCE
        while len(self.lines(name)) < count:
            self.assertLess(time.monotonic(), deadline, "%s: %s" % (name, self.lines(name)))
            time.sleep(0.01)

    def wait_for_nobody(self, process):
        """Waits until all processes of its session have ended."""
        deadline = time.monotonic() + PATIENCE
        while session(process.pid):
            self.assertLess(time.monotonic(), deadline, "processes are left")
            time.sleep(0.01)

    def test_whatever_ends_a_process(self):
        """J14: exception, exit 3, kill -9, a stack that is full: each is recorded and told once, alone."""
        ran = self.python(
            PRELUDE
            + """
def f(x):
    note("ran", x)
    if x == "raise": raise ValueError("no")
    if x == "exit": sys.exit(3)
    if x == "_exit": os._exit(4)
    if x == "_exit 0": os._exit(0)
    if x == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if x == "term": os.kill(os.getpid(), signal.SIGTERM)
    if x == "stack":
        import faulthandler
        faulthandler._stack_overflow()
    return x

said = []
def told(record):
    said.append((record.params["x"], record.exit_code, record.signal))

bad = ["raise", "exit", "_exit", "_exit 0", "kill", "term", "stack"]
sweep = hpcsweep.Sweep("s", quiet=True).grid(x=bad + [0, 1, 2, 3, 4, 5, 6, 7])
finished = []
show(sweep.run(f, processes=2, on_error=told, on_finish=lambda record: finished.append(record.value)))
print(json.dumps(sorted(said)))
print(sorted(finished))
"""
        )
        records, said, finished = map(json.loads, ran.out.splitlines())
        ends = {record[0]: record[1:] for record in records}
        self.assertEqual(ends["raise"], ["failed", None, 1, None, "ValueError: no (program.py, line 17)"])
        self.assertRegex(ends["exit"][4], "^SystemExit: 3")
        self.assertEqual(ends["_exit"], ["failed", None, 4, None, "it has ended its process with code 4"])
        self.assertEqual(ends["_exit 0"], ["failed", None, 1, None, "it has ended its process with code 0"])
        self.assertEqual(ends["kill"], ["failed", None, 137, 9, "it was killed by SIGKILL"])
        self.assertEqual(ends["term"], ["failed", None, 143, 15, "it was killed by SIGTERM"])
        self.assertIn(ends["stack"][3], (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT))
        self.assertEqual([ends[x] for x in range(8)], [["done", x, 0, None, None] for x in range(8)])
        told = sorted([x, end[2], end[3]] for x, end in ends.items() if end[0] == "failed")
        self.assertEqual([(x, number) for x, _, number in said], [(x, number) for x, _, number in told])
        self.assertEqual(finished, list(range(8)))
        self.assertEqual(sorted(self.lines("ran")), sorted(str(record[0]) for record in records))

    def test_killed_while_it_answers(self):
        """The agent has half of a line; what the process was told and had not read yet is not lost."""
        ran = self.python(
            PRELUDE
            + """
import subprocess, threading

def f(x):
    if x != 1:
        return x
    # The agent does not read, so the answer fills the pipe, until the process is dead.
    (agent,) = [p for p in os.listdir("/proc") if p.isdigit() and is_agent(p)]
    os.kill(int(agent), signal.SIGSTOP)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
    script = "while kill -0 %d; do sleep 0.01; done 2>&-; kill -CONT %s" % (os.getpid(), agent)
    subprocess.Popen(["sh", "-c", script], start_new_session=True)
    return "long" * 1000000

def is_agent(pid):
    try:
        with open("/proc/%s/stat" % pid) as file:
            name, rest = file.read().split(")", 1)
    except OSError:
        return False
    return "(hpcsweep" in name and int(rest.split()[1]) == os.getppid()

failed = []
records = hpcsweep.Sweep("s", quiet=True).grid(x=list(range(9))).run(f, processes=2, on_error=failed.append)
print([r.value for r in records], [(r.params["x"], r.state) for r in failed])
"""
        )
        self.assertEqual(ran.out, "[0, None, 2, 3, 4, 5, 6, 7, 8] [(1, 'failed')]\n")

    def test_parameters_of_any_length(self):
        """Also of a trial that ends its process."""
        ran = self.python(
            PRELUDE
            + """
failed = []
sweep = hpcsweep.Sweep("s", quiet=True).grid(x=[list(range(100000)), [1]])
sweep.run(lambda x: os._exit(1) if len(x) > 1 else 2, processes=2, on_error=failed.append)
print([len(record.params["x"]) for record in failed], [record.value for record in sweep.results()])
"""
        )
        self.assertEqual(ran.out, "[100000] [None, 2]\n")

    def test_in_a_thread(self):
        """Where there are no signals."""
        ran = self.python(
            PRELUDE
            + """
import threading
for processes in (1, 2):
    sweep = hpcsweep.Sweep("s%d" % processes, quiet=True).grid(x=[1, 2, 3])
    thread = threading.Thread(target=lambda: show(sweep.run(lambda x: x, processes=processes)))
    thread.start()
    thread.join()
"""
        )
        line = json.dumps([[x, "done", x, 0, None, None] for x in (1, 2, 3)]) + "\n"
        self.assertEqual((ran.out, ran.err), (line * 2, ""))

    def test_never_more_than_so_many(self):
        """J16: max_processes, or processes, of functions at once, and all of them at once."""
        for name in ("processes", "max_processes"):
            self.python(
                PRELUDE
                + """
def f(x):
    note("%s", "begin", os.getpid())
    # Until so many run at once, all of them.
    while x < 3 and len(open("%s").read().split("begin")) < 4:
        time.sleep(0.001)
    note("%s", "end", os.getpid())

hpcsweep.Sweep("%s", quiet=True).grid(x=list(range(60))).run(f, %s=3)
"""
                % ((name,) * 5)
            )
            most, now, who = 0, 0, set()
            for line in self.lines(name):
                word, pid = line.split()
                now += 1 if word == "begin" else -1
                most = max(most, now)
                who.add(pid)
            self.assertEqual((most, len(who), len(self.lines(name))), (3, 3, 120))

    def test_what_a_process_keeps(self):
        """Each has what its trials have left in it, the first has none of it; nothing is pickled."""
        ran = self.python(
            PRELUDE
            + """
cache = {"lock": __import__("threading").Lock(), "n": 0}
def f(x):
    with cache["lock"]:
        cache["n"] += 1
        return os.getpid(), cache["n"]

records = hpcsweep.Sweep("s", quiet=True).grid(x=list(range(50))).run(f, processes=2)
print(json.dumps([cache["n"], [record.value for record in records]]))
"""
        )
        kept, values = json.loads(ran.out)
        counts = {pid: max(n for other, n in values if other == pid) for pid, _ in values}
        self.assertEqual((kept, sum(counts.values())), (0, 50))
        self.assertEqual(sorted(values), sorted([pid, n + 1] for pid, most in counts.items() for n in range(most)))

    def test_more_processes_than_trials(self):
        """And none of either."""
        ran = self.python(
            PRELUDE
            + """
sweep = hpcsweep.Sweep("s", quiet=True).grid(x=[1])
show(sweep.run(lambda x: x, processes=5))
show(sweep.run(lambda x: x, processes=5))
"""
        )
        self.assertEqual(ran.out, '[[1, "done", 1, 0, null, null]]\n' * 2)

    def test_retry_is_dealt_once(self):
        """What has failed is run once more by all of them together."""
        self.python(
            PRELUDE
            + """
def f(x):
    note("ran", x)
    note("by", os.getpid())
    # The others come when the first has failed again.
    while x and len(set(open("by"))) < 3:
        time.sleep(0.001)
    raise ValueError

sweep = hpcsweep.Sweep("s", quiet=True, settings="[pull]\\nbreaker = false").grid(x=list(range(20)))
sweep.run(f, processes=3)
os.unlink("by")
sweep.run(f, processes=3, retry=True)
"""
        )
        ran = self.lines("ran")
        self.assertEqual(sorted(ran[:20]), sorted(ran[20:]))

    def test_a_fault_is_said_once(self):
        """What is no plan."""
        ran = self.python(
            PRELUDE
            + """
try:
    hpcsweep.Sweep("s", settings="[pull]\\nlease = -1", quiet=True).grid(x=[1]).run(lambda x: x, processes=3)
except hpcsweep.SweepError as e:
    print(e)
"""
        )
        self.assertIn("lease", ran.out)
        self.assertEqual(ran.err, "")

    SLOW = (
        PRELUDE
        + """
def f(x):
    note("begun", x)
    if os.path.exists("fast"):
        return x
    %s

# No process outlives such a lease.
sweep = hpcsweep.Sweep("s", quiet=True, settings="[pull]\\nlease = '1h'").grid(x=list(range(6)))
show(sweep.run(f, processes=int(sys.argv[1])))
"""
    )
    FOR_EVER = "while True: time.sleep(0.01)"

    def goes_on(self, begun, faults):
        """Nothing waits for a lease: a second start does all the work. What was interrupted has not been an attempt."""
        self.write("fast", "")
        before = len(self.lines("begun"))
        ran = self.run_script("p.py", "2")
        self.assertEqual(ran.out, json.dumps([[x, "done", x, 0, None, None] for x in range(6)]) + "\n", str(ran))
        self.assertEqual((before, len(self.lines("begun")) - before), (begun, 6))
        tried = sorted(record["attempt"] for record in self.records("results/s"))
        self.assertEqual(tried, [1] * (6 - faults) + [2] * faults)

    def test_ctrl_c(self):
        """M21: the functions hear KeyboardInterrupt, their trials are others'; nothing is counted, nothing is left."""
        for processes in (1, 2):
            with self.subTest(processes=processes):
                self.folder = self.folder / str(processes)
                self.folder.mkdir()
                self.write("p.py", self.SLOW % self.FOR_EVER)
                started = self.start("p.py", str(processes))
                self.wait_for("begun", processes)
                # As a terminal does: to the group that is in front.
                os.killpg(started.pid, signal.SIGINT)
                ran = self.end(started)
                self.assertEqual(ran.code, -signal.SIGINT, str(ran))
                self.assertRegex(ran.err, r"(?s)Traceback.*KeyboardInterrupt\n$")
                self.assertEqual(ran.err.count("Traceback"), 1, ran.err)
                self.wait_for_nobody(started)
                self.goes_on(processes, 0)

    def test_a_function_that_does_not_hear(self):
        """A second Ctrl-C kills, and the work comes back at once all the same."""
        ignores = "signal.signal(signal.SIGINT, signal.SIG_IGN); note('deaf', x); " + self.FOR_EVER
        self.write("p.py", self.SLOW % ignores.replace("; while", "\n    while"))
        started = self.start("p.py", "2")
        self.wait_for("deaf", 2)
        os.killpg(started.pid, signal.SIGINT)
        deadline = time.monotonic() + PATIENCE
        while started.poll() is None:
            self.assertLess(time.monotonic(), deadline)
            os.killpg(started.pid, signal.SIGINT)
            time.sleep(0.05)
        self.end(started)
        self.wait_for_nobody(started)
        self.goes_on(2, 2)

    def test_signals_of_schedulers(self):
        """M21: SIGTERM to all, or to the first process alone: work is given back at once, no attempt has failed."""
        for processes in (1, 2):
            for to_all in (True, False):
                with self.subTest(processes=processes, to_all=to_all):
                    self.folder = self.folder / ("%s-%s" % (processes, to_all))
                    self.folder.mkdir()
                    self.write("p.py", self.SLOW % self.FOR_EVER)
                    started = self.start("p.py", str(processes))
                    self.wait_for("begun", processes)
                    for pid in session(started.pid) if to_all else [started.pid]:
                        try:
                            os.kill(pid, signal.SIGTERM)
                        except ProcessLookupError:
                            pass
                    ran = self.end(started)
                    self.assertEqual(ran.code, -signal.SIGTERM if processes == 1 else 128 + signal.SIGTERM, str(ran))
                    self.wait_for_nobody(started)
                    self.assertNotIn("failed", self.call("status", "results/s"))
                    # If a single process dies alone, no other process knows why.
                    self.goes_on(processes, int(processes == 1 and not to_all))

    def test_a_signal_of_a_scheduler_in_the_background(self):
        """What a shell starts behind `nohup` and `&` ignores Ctrl-C, and hears the others all the same."""
        self.write("p.py", self.SLOW % self.FOR_EVER)
        started = self.start("p.py", "2", interrupt=signal.SIG_IGN)
        self.wait_for("begun", 2)
        os.kill(started.pid, signal.SIGTERM)
        ran = self.end(started)
        self.assertEqual(ran.code, 128 + signal.SIGTERM, str(ran))
        self.wait_for_nobody(started)
        self.goes_on(2, 0)

    def test_a_function_that_asks_whether_to_stop(self):
        """It has its time, its result counts, or it says that it goes on elsewhere."""
        # It takes longer than signals of a scheduler may lie apart.
        program = self.SLOW.replace("# Nobody", "import hpcsweep.pool\nhpcsweep.pool.MOMENT = 0.1\n# Nobody")
        asks = "while not hpcsweep.should_stop(): note('asks', x)\n    time.sleep(0.5)\n    %s"
        for processes in (1, 2):
            for end in ("return x", "raise hpcsweep.Interrupted"):
                with self.subTest(processes=processes, end=end):
                    self.folder = self.folder / ("%s-%s" % (processes, end[:3]))
                    self.folder.mkdir()
                    self.write("p.py", program % (asks % end))
                    started = self.start("p.py", str(processes))
                    self.wait_for("begun", processes)
                    self.wait_for("asks", 100)
                    for pid in session(started.pid):
                        try:
                            os.kill(pid, signal.SIGTERM)
                        except ProcessLookupError:
                            pass
                    ran = self.end(started)
                    self.assertEqual(ran.code, 128 + signal.SIGTERM, str(ran))
                    self.wait_for_nobody(started)
                    states = [record["state"] for record in self.records("results/s")]
                    self.assertEqual(states.count("done"), processes if end.startswith("return") else 0)
                    self.assertEqual(states.count("failed"), 0)

    def test_killed_agents(self):
        """Each killed agent is followed by another one; what it ran is run again after its lease."""
        for processes in (1, 2):
            with self.subTest(processes=processes):
                self.folder = self.folder / str(processes)
                self.folder.mkdir()
                program = self.SLOW.replace("lease = '1h'", "lease = 1")
                self.write("p.py", program % "while not os.path.exists('fast'): time.sleep(0.01)\n    return x")
                started = self.start("p.py", str(processes))
                self.wait_for("begun", processes)
                agents = [pid for pid in session(started.pid) if name_of(pid).startswith("hpcsweep")]
                self.assertEqual(len(agents), processes)
                for pid in agents:
                    os.kill(pid, signal.SIGKILL)
                self.write("fast", "")
                ran = self.end(started)
                done = [[x, "done", x, 0, None, None] for x in range(6)]
                self.assertEqual(ran.out, json.dumps(done) + "\n", str(ran))
                self.wait_for_nobody(started)


def name_of(pid):
    with open("/proc/%d/comm" % pid) as file:
        return file.read().strip()


class Readers(World):
    """Sweeps that others may read."""

    def test_functions_keep_the_umask_of_their_process(self):
        """What agents record is for the readers whatever the umask is, and what functions make is not theirs to open."""
        profile = self.folder / ".config" / "hpcsweep"
        profile.mkdir(parents=True)
        (profile / "site.toml").write_text('version = 1\nresults.readable_by = "all"\n')
        self.python(
            """
import os
import hpcsweep

def f(x):
    with open(os.path.join(hpcsweep.checkpoint_dir(), "own"), "w") as file:
        file.write("mine")
    return "%03o" % os.umask(0o077)

os.umask(0o077)
sweep = hpcsweep.Sweep("s", quiet=True)
sweep.grid(x=[1, 2, 3])
sweep.run(f, processes=2)
assert [record["value"] for record in sweep.results()] == ["077"] * 3, sweep.results()
"""
        )
        closed = [
            os.path.relpath(os.path.join(root, name), str(self.folder / "results" / "s"))
            for root, folders, files in os.walk(str(self.folder / "results" / "s"))
            for name in folders + files
            if not os.stat(os.path.join(root, name)).st_mode & 0o004
        ]
        self.assertTrue(closed)
        self.assertEqual([path for path in closed if path.split(os.sep)[0] != "work"], [])


if __name__ == "__main__":
    unittest.main()
