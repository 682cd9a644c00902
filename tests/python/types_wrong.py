"""A user's program in which a checker of types finds a fault in each of the last five lines."""

import hpcsweep

sweep = hpcsweep.Sweep("results/demo").grid(lr=[0.1, 0.01])
sweep.run(abs, proceses=2)
sweep.seeds("5")
hpcsweep.best("results/demo", metric="loss")
hpcsweep.raport(loss=1.0)
when: int = hpcsweep.time_left()
