"""A sweep of a Python function: every combination of the grid is one call.

    python3 fit.py                                  run it here; start it on more hosts, and they share the work
    hpcsweep submit fit.py --slurm --workers 4      or by jobs of a cluster
    hpcsweep plan fit.py                            what it would do
"""

import os
import random

import hpcsweep


def fit(lr, momentum, epochs=20):
    """Fits a straight line to 200 noisy points by gradient descent. Replace it by your own function."""
    chance = random.Random(1)
    x = [i / 100 - 1 for i in range(200)]
    y = [3 * each - 0.5 + chance.uniform(-0.1, 0.1) for each in x]
    w = b = vw = vb = loss = 0.0
    for epoch in range(1, epochs + 1):
        errors = [w * each + b - target for each, target in zip(x, y)]
        loss = sum(error * error for error in errors) / len(x)
        vw = momentum * vw + 2 * sum(error * each for error, each in zip(errors, x)) / len(x)
        vb = momentum * vb + 2 * sum(errors) / len(x)
        w, b = w - lr * vw, b - lr * vb
        # A learning curve: `hpcsweep collect --steps`.
        hpcsweep.report(epoch=epoch, loss=loss)
    return {"loss": loss, "w": w, "b": b}


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sweep = hpcsweep.Sweep(os.path.join(here, "results", "@NAME@"))
    sweep.grid(lr=[0.01, 0.05, 0.2], momentum=[0.0, 0.8])
    sweep.run(fit)
    best = sweep.best("loss")
    print("best:", best.params, best.value)
