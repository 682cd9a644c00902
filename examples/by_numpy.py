"""Trains a network with one hidden layer on handwritten digits (data/README.md): numpy, minibatch SGD.

Nothing in it knows hpcsweep but two environment variables, and it runs without them too:
  HPCSWEEP_METRICS   a file: one JSON line for each epoch is appended to it
  HPCSWEEP_WORK_DIR  a folder of the trial: the best weights are saved in it
"""

import argparse
import json
import os
import sys
import time

import numpy as np


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--momentum", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def split(seed):
    """A fifth of the images is kept for validation; the same fifth for every trial of a seed."""
    data = np.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "digits.npz"))
    images, labels = data["x"].reshape(len(data["x"]), -1), data["y"]
    order = np.random.default_rng(seed).permutation(len(images))
    cut = len(images) // 5
    images = images / 16.0
    return (images[order[cut:]], labels[order[cut:]]), (images[order[:cut]], labels[order[:cut]])


def forward(weights, images):
    w1, b1, w2, b2 = weights
    hidden = np.maximum(images @ w1 + b1, 0.0)
    scores = hidden @ w2 + b2
    scores -= scores.max(axis=1, keepdims=True)
    odds = np.exp(scores)
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def gradients(weights, images, labels):
    """The gradient of the mean cross-entropy, by the chain rule."""
    _, _, w2, _ = weights
    hidden, chances = forward(weights, images)
    error = chances
    error[np.arange(len(labels)), labels] -= 1.0
    error /= len(labels)
    back = (error @ w2.T) * (hidden > 0.0)
    return [images.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]


def judge(weights, images, labels):
    _, chances = forward(weights, images)
    loss = -np.log(chances[np.arange(len(labels)), labels] + 1e-12).mean()
    return float(loss), float((chances.argmax(axis=1) == labels).mean())


def main():
    args = parse()
    random = np.random.default_rng(args.seed)
    (images, labels), validation = split(args.seed)
    n_inputs, n_classes = images.shape[1], 10
    weights = [
        random.normal(0.0, np.sqrt(2.0 / n_inputs), (n_inputs, args.hidden)),
        np.zeros(args.hidden),
        random.normal(0.0, np.sqrt(2.0 / args.hidden), (args.hidden, n_classes)),
        np.zeros(n_classes),
    ]
    speeds = [np.zeros_like(w) for w in weights]
    best = -1.0
    metrics = os.environ.get("HPCSWEEP_METRICS")
    folder = os.environ.get("HPCSWEEP_WORK_DIR")
    out = open(metrics, "a", buffering=1) if metrics else sys.stdout
    began = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        order = random.permutation(len(images))
        for start in range(0, len(order), args.batch_size):
            batch = order[start : start + args.batch_size]
            for w, v, g in zip(weights, speeds, gradients(weights, images[batch], labels[batch])):
                v *= args.momentum
                v -= args.lr * g
                w += v
        loss, accuracy = judge(weights, *validation)
        row = {"epoch": epoch, "loss": loss, "accuracy": accuracy}
        print(json.dumps(row), file=out)
        if accuracy > best and folder:
            np.savez(os.path.join(folder, "weights.npz"), *weights)
        best = max(best, accuracy)
    print(f"accuracy {accuracy:.4f}, the best of all epochs {best:.4f}, in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
