"""Points with more than parameters, results with odd text, and other processes that change the grid meanwhile."""

import json
import shutil
import unittest

from world import NOTE, World


class Text(World):
    def test_separators_within_a_result(self):
        """All that somebody takes for the end of a line, in results, metrics, errors, parameters: by both programs."""
        ran = self.python(
            r"""
import hpcsweep, json
ends = "\u2028 \u2029 \x85 \x0b \x0c \x1c \x1d \x1e \r \r\n \n a"
def f(text, bad):
    hpcsweep.report(text=text)
    if bad:
        raise ValueError("odd" + text)
    return {"text": text, text: len(text)}

for processes in (1, 2):
    sweep = hpcsweep.Sweep("s%d" % processes, quiet=True, settings="# \x85 \u2028 of a note").grid(
        text=["x" + ends, "y", ends], bad=[False, True])
    said = []
    for records in (sweep.run(f, processes=processes, on_error=said.append), sweep.results(),
                    hpcsweep.Sweep("s%d" % processes).results()):
        assert [r.params["text"] for r in records] == ["x" + ends] * 2 + ["y"] * 2 + [ends] * 2, records
        for r in records:
            text = r.params["text"]
            assert r.value == (None if r.params["bad"] else {"text": text, text: len(text)}), r
            assert r.metrics["text"] == text, r
            assert not r.params["bad"] or "odd" in r.traceback, r
    assert len(said) == 3, said
    print(json.dumps(sweep.best(lambda r: len(r.value["text"])).value))
"""
        )
        self.assertEqual(ran.out, '{"text": "y", "y": 1}\n' * 2)


class Points(World):
    def test_uneven_points_and_defaults(self):
        """A point has the parameters that it has; [defaults] of the settings are beneath all of them."""
        ran = self.python(
            """
import hpcsweep
def f(lr, depth=1, **more):
    return [lr, depth, more]
sweep = hpcsweep.Sweep("s", quiet=True).points([{"lr": 0.1}, {"lr": 0.2, "depth": 3}, {"lr": None}])
print([r.value for r in sweep.run(f)], [r.params for r in sweep.results()])
sweep = hpcsweep.Sweep("t", quiet=True, settings="[defaults]\\nepochs = 5\\nopt.eps = 1e-8")
sweep.points([{"lr": 0.1}, {"lr": 0.2, "epochs": 9}])
print([r.value for r in sweep.run(f, processes=2)], sweep.results()[0].params)
sweep = hpcsweep.Sweep("u", quiet=True, settings="[defaults]\\nepochs = 5").grid([1, 2], [3])
print([r.value for r in sweep.run(f)])
try:
    hpcsweep.Sweep("s").points([{"lr": 1}, {"rate": 1}]).run(lambda lr: lr)
except TypeError as e:
    print(e)
try:
    hpcsweep.Sweep("s").grid({"lr": [1, 2]})
except ValueError as e:
    print(e)
"""
        )
        self.assertEqual(
            ran.out,
            """[[0.1, 1, {}], [0.2, 3, {}], [None, 1, {}]] [{'lr': 0.1}, {'lr': 0.2, 'depth': 3}, {'lr': None}]
[[0.1, 1, {'epochs': 5, 'opt': {'eps': 1e-08}}], [0.2, 1, {'epochs': 9, 'opt': {'eps': 1e-08}}]] \
{'lr': 0.1, 'epochs': 5, 'opt': {'eps': 1e-08}}
[[1, 3, {'epochs': 5}], [2, 3, {'epochs': 5}]]
the function cannot be called with rate: missing a required argument: 'lr'
grid() takes the axes by name: write two asterisks before the dict, grid(**{...})
""",
        )

    def test_chains_of_points(self):
        """task_id makes chains, on_failure says what a failure does to the rest, [run] of the settings stays."""
        for on_failure, settings in (("stop", ""), ("continue", ""), ("continue", '[run]\non_failure = "continue"\n')):
            name = "s%d%s" % (len(settings), on_failure)
            ran = self.python(
                NOTE
                + """
import hpcsweep, os
def f(x):
    note("%s", x)
    if x == 1:
        raise ValueError
    return x
rows = [{"x": x, "task_id": "a" if x < 3 else 7} for x in range(6)]
sweep = hpcsweep.Sweep("%s", quiet=True, settings=%r).points(rows)
records = sweep.run(f, processes=2, on_failure=%r)
print([r.state for r in records], [sorted(r.params) for r in records] == [["x"]] * 6)
"""
                % (name, name, settings, "stop" if settings else on_failure)
            )
            third = "skipped" if on_failure == "stop" else "done"
            states = ["done", "failed", third, "done", "done", "done"]
            self.assertEqual(ran.out, "%s True\n" % states)
            began = [int(line) for line in self.lines(name)]
            for chain in ([x for x in began if x < 3], [x for x in began if x > 2]):
                self.assertEqual(chain, sorted(chain))

    def test_gpus_with_a_walltime(self):
        """A table of the settings and an argument that adds to it are one table of the plan."""
        ran = self.python(
            """
import hpcsweep
for settings in ("[resources]\\nwalltime = '1h'", "resources.walltime = '1h'", "resources . walltime = '1h'\\n[pull]\\n",
                 "[pull]\\nlease = 9\\n[resources] # of a trial\\nwalltime = '1h'\\n[hooks]\\ntimeout = '1s'", ""):
    sweep = hpcsweep.Sweep("s", settings=settings).points([{"x": 1, "gpu_ids_abs": [0]}])
    try:
        sweep.run(lambda x: x, gpus=1)
    except hpcsweep.SweepError as e:
        assert "GPU" in str(e) or "driver" in str(e) or "NVIDIA" in str(e) or "NVML" in str(e), e
"""
        )
        self.assertEqual(ran.code, 0)
        self.assertIn("gpus_per_rank = 1", (self.folder / "results/s.toml").read_text())

    def gpus(self, visible, **asked):
        """Devices that processes of one run have, which all run before one ends; or why there is no run."""
        script = """
import os, time, hpcsweep
def f(x):
    open("seen." + str(x), "w").write(os.environ["CUDA_VISIBLE_DEVICES"] + " " + os.environ["CUDA_DEVICE_ORDER"])
    while sum(name.startswith("seen.") for name in os.listdir(".")) < 4:
        time.sleep(0.01)
    return x
try:
    hpcsweep.Sweep("s", quiet=True).grid(x=[0, 1, 2, 3]).run(f, gpus=1, **%r)
    for name in sorted(name for name in os.listdir(".") if name.startswith("seen.")):
        print(open(name).read())
except hpcsweep.SweepError as e:
    print(e)
""" % (asked,)
        # The processes agree in the temporary folder who has which device.
        (self.folder / "tmp").mkdir()
        self.environment.update(CUDA_VISIBLE_DEVICES=visible, TMPDIR=str(self.folder / "tmp"))
        return self.python(script)

    def test_processes_have_devices_of_their_own(self):
        """Of what a job was granted each process takes its own, and not all the first."""
        ran = self.gpus("4,5,6,7", processes=4)
        self.assertEqual(sorted(ran.out.split("\n")[:-1]), ["%d PCI_BUS_ID" % n for n in (4, 5, 6, 7)])

    NAMED = """
import os, sys, time, hpcsweep
def f(x):
    mine = os.environ.get("CUDA_VISIBLE_DEVICES", "unset")
    # A point that asks for none sees them all, and holds none.
    held = ["busy." + each for each in mine.split(",") if each and mine != "4,5,6"]
    for name in held:
        os.mkdir(name)
    open("ran", "a").write("%d %d\\n" % (x, os.getpid()))
    for name in held:
        os.rmdir(name)
    return mine
def main(points, more="", settings="", how="run"):
    points = [dict({"x": x}, **({} if ids is None else {"gpu_ids_abs": ids})) for x, ids in enumerate(points)]
    sweep = hpcsweep.Sweep("s", quiet=True, settings=settings).points(points)
    if how == "run":
        records = eval("sweep.run(f, %s)" % more)
    else:
        records = eval("sweep.submit(%r, f, %s)" % (how, more)).wait(60)
    print([record.value if record.done else record.error for record in records])
if __name__ == "__main__":
    try:
        main(*eval(sys.argv[1]))
    except (ValueError, hpcsweep.SweepError) as e:
        print(e)
"""

    def named(self, *asked):
        """What points that name devices see, of 4, 5 and 6."""
        self.environment.update(CUDA_VISIBLE_DEVICES="4,5,6", TMPDIR=str(self.folder))
        self.write("p.py", self.NAMED)
        shutil.rmtree(str(self.folder / "results"), ignore_errors=True)
        return self.run_script("p.py", repr(asked)).out

    def test_points_that_name_their_devices(self):
        """Each runs on exactly these, and never two at a time on one; a process never changes its devices."""
        points = [[4], [5], [6], [4], [5, 6], [], [6, 4], [4]] * 3
        seen = repr([",".join(map(str, ids)) for ids in points]) + "\n"
        self.assertEqual(self.named(points, "processes=3"), seen)
        ran = [tuple(map(int, line.split())) for line in self.lines("ran")]
        self.assertEqual(sorted(x for x, _ in ran), list(range(len(points))))
        for pid in {pid for _, pid in ran}:
            self.assertEqual(len({tuple(points[x]) for x, other in ran if other == pid}), 1)
        # A point without devices sees all that are left; with `gpus=1` it gets one of them.
        self.assertEqual(self.named([[5], None, [5]], "processes=2"), "['5', '4,5,6', '5']\n")
        self.assertIn(self.named([[5], None], "processes=2, gpus=1"), ["['5', '%d']\n" % n for n in (4, 5, 6)])

    def test_points_that_name_their_devices_in_one_process(self):
        """The same ones for all of them will do; others are refused before anything runs."""
        self.assertEqual(self.named([[5], [5]]), "['5', '5']\n")
        (self.folder / "ran").unlink()
        refusal = (
            "points name different devices in gpu_ids_abs ([4] and [5]), and one process keeps those of its first call: "
            "run(..., processes=2) calls the function in forks, each with the devices of its point\n"
        )
        self.assertEqual(self.named([[4], [5]]), refusal)
        self.assertFalse((self.folder / "results").exists())
        missing = self.named([[4], [7]], "processes=2")
        self.assertEqual(missing, "trials name device 7 in `gpu_ids_abs`, which is not there\n  devices here: 4, 5, 6 (CUDA_VISIBLE_DEVICES=4,5,6)\n")
        self.assertFalse((self.folder / "ran").exists())

    def test_points_that_name_their_devices_in_jobs(self):
        """Background processes of this machine have them; a scheduler chooses itself."""
        self.assertEqual(self.named([[4], [5], [4]], "", "", "local"), "['4', '5', '4']\n")
        refusal = (
            "trial 0 names its devices in `gpu_ids_abs`, and the scheduler chooses those of a job\n"
            "hint: write `gpu_ids = \"count\"` under `[schedule]` in `Sweep(..., settings=...)`: then only their number counts\n"
        )
        self.assertEqual(self.named([[4], [5]], "", "", "slurm"), refusal)
        counted = self.named([[7], [8]], "processes=2", "[schedule]\ngpu_ids = 'count'")
        self.assertTrue(set(eval(counted)) <= {"4", "5", "6"}, counted)

    def test_no_copy_waits_for_devices(self):
        """Where the run that it is to overtake has the devices, none is claimed, again and again."""
        self.environment.update(CUDA_VISIBLE_DEVICES="4,5", TMPDIR=str(self.folder))
        script = """
import os, time, hpcsweep
def f(x):
    if x == 5:
        # Long behind the others, while the other process has nothing left to do.
        time.sleep(2)
    return os.environ["CUDA_VISIBLE_DEVICES"]
settings = "[pull]\\nrepeatable = true\\nstraggler = 1.1\\nlease = 2"
points = [{"x": x, "gpu_ids_abs": [4 + x % 2]} for x in range(6)]
records = hpcsweep.Sweep("s", quiet=True, settings=settings).points(points).run(f, processes=2)
print([record.value for record in records])
"""
        self.assertEqual(self.python(script).out, "%s\n" % (["4", "5"] * 3))
        claims = self.folder / "results/s/claims"
        entries = [json.loads(path.read_text()) for path in claims.rglob("*.json")]
        of_others = [e for e in entries if e["event"] == "copy" and e["trial"] == 5 and e["agent"] != e["of"]]
        # Between the end of a run, which frees its device, and the line about it in the bundle one may be claimed.
        self.assertLessEqual(len(of_others), 1, of_others)

    def test_too_few_devices(self):
        """Who has them is said, and what helps is an argument here, not a key of a plan."""
        self.environment.update(CUDA_VISIBLE_DEVICES="4", TMPDIR=str(self.folder))
        script = """
import os, sys, time, hpcsweep
def f(x):
    open("began", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.01)
hpcsweep.Sweep(sys.argv[1], quiet=True).grid(x=[1]).run(f, gpus=1)
"""
        self.write("p.py", script)
        first = self.start("p.py", "first")
        while not (self.folder / "began").exists():
            self.assertIsNone(first.poll())
        ran = self.run_script("p.py", "second")
        self.write("go", "")
        self.assertEqual(self.end(first).code, 0)
        self.assertIn("reserved (process ", ran.err)
        hint = "hint: wait until they are free, start fewer processes here, or let more trials of this sweep share a GPU: "
        self.assertTrue(ran.err.endswith(hint + "`gpu_share=2` of `run` or `submit`\n"), str(ran))
        # More processes on a device that is not there are no help.
        self.environment["CUDA_VISIBLE_DEVICES"] = ""
        self.write("again.py", "import hpcsweep\nhpcsweep.Sweep('t', quiet=True).grid([1]).run(abs, gpus=1)\n")
        ran = self.run_script("again.py")
        self.assertIn("a trial needs 1 GPU, and CUDA_VISIBLE_DEVICES is empty", ran.err)
        self.assertNotIn("gpu_share", ran.err)

    def test_a_sweep_that_has_ended_needs_no_device(self):
        """Its results are read where its devices are gone."""
        self.write("p.py", "import hpcsweep\nprint(len(hpcsweep.Sweep('t').grid(x=[1]).run(lambda x: x, gpus=1)))\n")
        for visible in ("0", ""):
            self.environment["CUDA_VISIBLE_DEVICES"] = visible
            ran = self.run_script("p.py")
            self.assertEqual((ran.code, ran.out), (0, "1\n"), str(ran))

    def test_processes_share_devices(self):
        """So many on each as the caller says."""
        ran = self.gpus("GPU-a,GPU-b", processes=4, gpu_share=2)
        seen = ["GPU-a PCI_BUS_ID"] * 2 + ["GPU-b PCI_BUS_ID"] * 2
        self.assertEqual(sorted(ran.out.split("\n")[:-1]), seen)
        self.assertIn("gpu_share = 2", (self.folder / "results/s.toml").read_text())


class Others(World):
    """Two processes with one sweep, whose grids differ."""

    FIRST = (
        NOTE
        + """
import hpcsweep, os, sys, time
class A: pass
class B: pass

def f(x, more=None):
    note("ran", sys.argv[1], x)
    if sys.argv[1] == "first" and x == 0:
        while not os.path.exists("there"):
            time.sleep(0.001)
    return getattr(x, "__name__", str(x))

sweep = hpcsweep.Sweep("s", quiet=True)
exec(sys.argv[2])
if sys.argv[1] == "second":
    while not os.path.exists("ran"):
        time.sleep(0.001)
    sweep._write_before = sweep._write
    def write(text):
        sweep._write_before(text)
        note("there")
    sweep._write = write
print([r.value for r in sweep.run(f, processes=int(sys.argv[3]))])
"""
    )

    def together(self, first, second, processes):
        """What both print when the second comes while the first is in its first trial."""
        for name in ("ran", "there"):
            if (self.folder / name).exists():
                (self.folder / name).unlink()
        self.write("p.py", self.FIRST)
        started = [
            self.start("p.py", "first", first, str(processes)),
            self.start("p.py", "second", second, str(processes)),
        ]
        said = []
        for ran in map(self.end, started):
            self.assertEqual((ran.code, ran.err), (0, ""), str(ran))
            said.append(json.loads(ran.out.replace("'", '"')))
        return said

    def test_a_grid_that_others_change(self):
        """Each goes on until its own points have ended, and returns them: grown, shrunk, other values and names."""
        for number, (first, second) in enumerate(
            [
                ("range(4)", "range(6)"),
                ("range(6)", "range(3)"),
                ("range(4)", "[9, 8, 7]"),
            ]
        ):
            for processes in (1, 2):
                grids = ["sweep = hpcsweep.Sweep('s%d%d', quiet=True).grid(x=list(%s))" % (number, processes, each)
                         for each in (first, second)]
                said = self.together(grids[0], grids[1], processes)
                self.assertEqual(said, [[str(x) for x in eval(each)] for each in (first, second)])

    def test_objects_and_names_that_only_others_have(self):
        """Values that stand in the plan by name, and other parameters, are left to who has them."""
        grid = "sweep = hpcsweep.Sweep('%s', quiet=True).grid(%s)"
        for number, (first, second, values) in enumerate(
            [
                ("x=[0, A]", "x=[0, A, B]", [["0", "A"], ["0", "A", "B"]]),
                ("x=[0, 1, 2]", "x=[0, 1], more=[1]", [["0", "1", "2"], ["0", "1"]]),
            ]
        ):
            said = self.together(grid % ("t%d" % number, first), grid % ("t%d" % number, second), 1)
            self.assertEqual(said, values)

    SERIES = """
import hpcsweep

class Index(list):
    tolist = list.copy
    is_unique = property(lambda self: len(set(self)) == len(self))

class RangeIndex(Index):
    pass

class Series:
    # As that of pandas.
    def __init__(self, values, index=None):
        self.values, self.index = values, RangeIndex(range(len(values))) if index is None else Index(index)
    def tolist(self): return self.values
    def to_dict(self): return dict(zip(self.index, self.values))
    def keys(self): return self.index
    def __getitem__(self, name): return self.to_dict()[name]
"""

    def test_series_keep_their_names(self):
        """As points, as results and as values of an axis."""
        ran = self.python(
            self.SERIES
            + """
sweep = hpcsweep.Sweep("s", quiet=True).points([Series([0.5, 1], ["lr", "n"]), Series([1.5, 2], ["lr", "n"])])
print([record.value for record in sweep.run(lambda lr, n: Series([lr, n], ["a", "b"]))])
print([record.metrics for record in hpcsweep.Sweep("s").results()])
values = [Series([1], ["a"]), Series([1], ["b"]), Series([1, 2]), Series([1, 2], ["a", "a"])]
print([record.value for record in hpcsweep.Sweep("t", quiet=True).grid(x=values).run(lambda x: x)])
"""
        )
        self.assertEqual(
            ran.out,
            "[{'a': 0.5, 'b': 1}, {'a': 1.5, 'b': 2}]\n" * 2 + "[{'a': 1}, {'b': 1}, [1, 2], [['a', 1], ['a', 2]]]\n",
        )


if __name__ == "__main__":
    unittest.main()
