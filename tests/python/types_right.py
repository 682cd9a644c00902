"""A user's program that a checker of types has nothing against; tests/python/types_wrong.py is one with faults."""

from typing import Any, Dict, List, Optional

import hpcsweep


def train(lr: float, seed: int) -> float:
    left: Optional[float] = hpcsweep.time_left()
    if hpcsweep.should_stop() or left == 0.0:
        raise hpcsweep.Interrupted
    hpcsweep.report(loss=lr, seed=seed)
    return lr


sweep: hpcsweep.Sweep = hpcsweep.Sweep("results/demo", quiet=True).grid(lr=[0.1, 0.01]).seeds(5)
records: List[hpcsweep.Record] = sweep.run(train, processes=2)
done: bool = records[0].done
submission: hpcsweep.Submission = sweep.submit("slurm", train, workers=4, walltime="2h")
drawn = hpcsweep.Sweep("results/random").sample(40, lr={"log_uniform": [1e-5, 1e-1]})
best: List[Dict[str, Any]] = hpcsweep.best("results/demo", metric="loss", mode="min", n=5)
difference: Dict[str, Any] = hpcsweep.compare("lr=0.1", "lr=0.01", metric="loss")
matters: Dict[str, Any] = hpcsweep.effects("results/*", metric="loss", mode="min")
version: str = hpcsweep.__version__
