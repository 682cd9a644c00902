"""What a call of a function has used: its own processor time, and the memory of its process."""

import unittest

from world import World

CALLS = """
import os, sys, time
import hpcsweep

def f(i):
    if i == 0:
        return i
    block = bytearray(b"1") * ((96 if i == 1 else 1) << 20)
    if i == 1 and os.fork() == 0:
        while sum(os.times()[:2]) < 0.3:
            pass
        os._exit(0)
    if i == 1:
        os.wait()
    time.sleep(0.01)
    return len(block)

hpcsweep.Sweep("results/s", quiet=True).grid(i=[0, 1, 2]).run(f, processes=int(sys.argv[1]))
"""


class Usage(World):
    def test_a_call_records_what_it_used_and_not_what_others_did(self):
        for processes in (1, 2):
            self.write("program.py", CALLS.replace("results/s", "results/%d" % processes))
            ran = self.run_script("program.py", str(processes))
            self.assertEqual(ran.code, 0, str(ran))
            short, large, small = self.records("results/%d" % processes)
            self.assertIsNone(short["usage"], short)
            usage = large["usage"]
            self.assertEqual(usage["memory_source"], "process")
            self.assertGreater(large["peak_memory"], 96 << 20)
            # The child's time is that of the call that has waited for it.
            self.assertGreater(usage["cpu_user_s"] + usage["cpu_system_s"], 0.29)
            self.assertLess(small["peak_memory"], 96 << 20)
            self.assertLess(small["usage"]["cpu_user_s"], 0.2)


if __name__ == "__main__":
    unittest.main()
