"""Threads of libraries, which forks would wait for; processes that a function starts; scripts without a guard."""

import re
import unittest

from world import NOTE, World

# A thread that Python does not know, as polars, OpenMP and gRPC have them; and which process has imported the script.
THREADS = (
    NOTE
    + """
import ctypes, sys, time
import hpcsweep

BORN = os.getpid()
c = ctypes.CDLL(None)
c.pthread_create(ctypes.byref(ctypes.c_ulong()), None, c.pause, None)

def fit(x):
    note("ran", x)
    return [x, BORN == os.getpid()]
"""
)


class Threads(World):
    def test_processes_beside_threads_of_libraries_are_no_forks(self):
        """Named functions and others, values that the plan cannot hold, callbacks, and what fails."""
        for number, (function, values) in enumerate(
            [("fit", "[1, 2, 3]"), ("lambda x: fit(x)", "[1, 2, 3]"), ("lambda x: fit(len(x))", "['a', (1, 2), ('b',) * 3]")]
        ):
            ran = self.python(
                THREADS
                + """
said = []
sweep = hpcsweep.Sweep("s%d", quiet=True).grid(x=%s)
records = sweep.run(%s, processes=2, on_finish=lambda record: said.append(record.value[0]))
print([record.value for record in records], sorted(said))
"""
                % (number, values, function)
            )
            self.assertEqual((ran.out, ran.err), ("[[1, True], [2, True], [3, True]] [1, 2, 3]\n", ""))
        self.assertEqual(sorted(self.lines("ran")), ["1"] * 3 + ["2"] * 3 + ["3"] * 3)

    def test_processes_without_them_are_forks(self):
        ran = self.python(
            THREADS.replace("c.pthread_create", "(lambda *_: None)")
            + "print([r.value for r in hpcsweep.Sweep('s', quiet=True).grid(x=[1, 2]).run(fit, processes=2)])"
        )
        self.assertEqual((ran.out, ran.err), ("[[1, False], [2, False]]\n", ""))

    def test_jobs_are_forked_before_the_script_is_imported(self):
        self.write(
            "fit.py",
            THREADS
            + """
if __name__ == "__main__":
    sweep = hpcsweep.Sweep("s", quiet=True).grid(x=[1, 2, 3])
    print([record.value for record in sweep.submit("local", %s, processes=2).wait(60)])
""",
        )
        script = (self.folder / "fit.py").read_text()
        for function in ("fit", "lambda x: fit(x)"):
            self.write("fit.py", script % function)
            ran = self.run_script("fit.py")
            self.assertEqual(ran.out, "[[1, True], [2, True], [3, True]]\n", str(ran))

    def test_a_killed_process_is_replaced(self):
        ran = self.python(
            THREADS
            + """
import signal
def dies(x):
    if x == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return fit(x)
if __name__ == "__main__":
    sweep = hpcsweep.Sweep("s", quiet=True).grid(x=[1, 2, 3, 4])
    print([(record.value, record.error) for record in sweep.run(dies, processes=2)])
"""
        )
        done = "([%d, True], None)"
        self.assertEqual(
            ran.out, "[%s, (None, 'it was killed by SIGKILL'), %s, %s]\n" % (done % 1, done % 3, done % 4), str(ran)
        )

    def test_a_function_that_no_process_can_find_is_refused(self):
        """One of a prompt; a script that fails, ends or dies where it is started again."""
        prompt = THREADS + "print(hpcsweep.Sweep('n', quiet=True).grid(x=[1]).run(lambda x: x, processes=2))\n"
        ran = self.run_script("-c", prompt)
        self.assertRegex(ran.err, r"SweepError: processes=2 or more needs forks (.|\n)*\(.*\): (.|\n)*notebook or a prompt")
        self.assertFalse((self.folder / "results/n").exists())
        for number, (action, words) in enumerate(
            [
                ("raise ValueError('not here')", "ValueError: not here"),
                ("sys.exit(0)", "SystemExit: 0"),
                ("os.kill(BORN, 9)", "a process was killed by SIGKILL before it has found the function"),
            ]
        ):
            ran = self.python(
                THREADS
                + """
if "HPCSWEEP_SERVE_PATH" in os.environ:
    %s
try:
    hpcsweep.Sweep("s%d", quiet=True).grid(x=[1, 2]).run(lambda x: x, processes=2)
except hpcsweep.SweepError as e:
    print(e)
"""
                % (action, number)
            )
            self.assertIn(words, ran.out)


SPAWNS = """
import multiprocessing as mp
import sys
import hpcsweep

def load(i):
    return i * 2

def fit(lr):
    %s

print("script", __name__, flush=True)
sweep = hpcsweep.Sweep("results/s", quiet=True).grid(lr=[0.5, 1.0])
%s
"""
WAYS = [
    "with mp.get_context('spawn').Pool(2) as pool:\n        return lr * sum(pool.map(load, range(4)))",
    "with mp.get_context('forkserver').Pool(2) as pool:\n        return lr * sum(pool.map(load, range(4)))",
    "process = mp.get_context('spawn').Process(target=load, args=(1,))\n    process.start()\n    process.join()\n    return 12 * lr",
    "from concurrent.futures import ProcessPoolExecutor as Pool\n"
    "    with Pool(2, mp_context=mp.get_context('spawn')) as pool:\n        return lr * sum(pool.map(load, range(4)))",
]
SENTENCE = "without `if __name__ == \"__main__\":`"


class Guards(World):
    def test_a_function_that_starts_processes_in_a_script_without_a_guard_fails_by_a_sentence(self):
        """The plan stays as it is, nothing hangs, and no process runs the script again."""
        for processes in (1, 2):
            for number, way in enumerate(WAYS):
                with self.subTest(way=way, processes=processes):
                    call = "for record in sweep.run(fit, retry=True, processes=%d): print(record.state, record.error)" % processes
                    ran = self.python(SPAWNS % (way, call))
                    self.assertEqual(ran.out.count(SENTENCE), 2, str(ran))
                    self.assertEqual(re.findall("^(script|failed)", ran.out, re.M), ["script", "failed", "failed"], str(ran))
                    self.assertIn('function = "program:fit"', (self.folder / "results/s.toml").read_text())

    def test_with_a_guard_it_runs(self):
        for way in WAYS:
            main = "if __name__ == '__main__':\n    print([record.value for record in sweep.run(fit, retry=True)])"
            ran = self.python(SPAWNS % (way, main))
            self.assertIn("[6.0, 12.0]\n", ran.out, str(ran))

    def test_a_guard_around_a_function_that_runs_the_sweep_is_one(self):
        main = "def main():\n    print([record.%s for record in sweep.run(fit, retry=True)])\nif %s:\n    main()"
        bare = self.python(SPAWNS % (WAYS[0], main % ("error", "True")))
        self.assertIn(SENTENCE, bare.out)
        ran = self.python(SPAWNS % (WAYS[0], main % ("value", "__name__ == '__main__'")))
        self.assertIn("[6.0, 12.0]\n", ran.out, str(ran))

    def test_a_script_that_a_process_imports_runs_no_sweep(self):
        """Processes that were started before the sweep. Python itself says nothing then."""
        text = SPAWNS % ("return lr", "print(len(sweep.run(fit)))")
        text = text.replace('print("script"', WAYS[2].replace("return 12 * lr", "print(process.exitcode)").replace("\n    ", "\n") + '\nprint("script"', 1)
        text = text.replace("process = mp", "if __name__ == '__main__':\n  process = mp").replace("\nprocess.", "\n  process.").replace("\nprint(process", "\n  print(process")
        ran = self.python(text)
        self.assertEqual(ran.out, "script __mp_main__\n1\nscript __main__\n2\n", str(ran))
        self.assertIn(SENTENCE, ran.err)
        self.assertIn('function = "program:fit"', (self.folder / "results/s.toml").read_text())


if __name__ == "__main__":
    unittest.main()
