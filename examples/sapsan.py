"""Cubes for sapsan.toml from HDF5 files of simulations, as Sapsan's CNN3d example has them.

A folder holds a file for each variable of each snapshot, FOLDER/T0/u_dim64_fm15.h5, with one array of the same name:
channels x edge x edge x edge.

  sapsan.py FOLDER                  writes FOLDER/cubes.npz once: x of the variable u, y of the target b
  sapsan.py FOLDER --make 4         before that, if the folder is not there, makes up 4 snapshots, so that the example runs
                                    without a simulation

Takes numpy and h5py (Debian's python3-h5py, or pip install h5py in a virtual environment).
"""

import argparse
import os
import shutil

import h5py
import numpy as np


def waves(chance, edge):
    """A smooth field of three channels: some waves of all directions, weaker where they are short."""
    grid = np.indices((edge,) * 3) * (2 * np.pi / edge)
    field = np.zeros((3, edge, edge, edge))
    for _ in range(24):
        k = chance.integers(-4, 5, 3)
        phase = np.tensordot(k, grid, 1) + chance.uniform(0, 2 * np.pi)
        field += chance.normal(size=(3, 1, 1, 1)) * np.cos(phase) / (1 + k @ k) ** 0.75
    return field


def make(folder, snapshots, edge):
    """Snapshots of a velocity `u`, and of a target `b` that depends on it."""
    aside = "%s.%d" % (folder, os.getpid())
    for number in range(snapshots):
        place = os.path.join(aside, "T%d" % number)
        os.makedirs(place)
        u = waves(np.random.default_rng(number), edge)
        for name, values in (("u", u), ("b", 0.5 * u + 0.1 * np.roll(u, 1, 0) * u)):
            with h5py.File(os.path.join(place, "%s_dim%d_fm15.h5" % (name, edge)), "w") as file:
                file[name] = values.astype(np.float32)
    try:
        os.rename(aside, folder)
    except OSError:
        # Another trial was faster.
        shutil.rmtree(aside)


def cubes(folder, name, size):
    """All cubes of a variable, snapshot by snapshot: samples x channels x size x size x size."""
    parts = []
    for snapshot in sorted(entry for entry in os.listdir(folder) if os.path.isdir(os.path.join(folder, entry))):
        place = os.path.join(folder, snapshot)
        (path,) = [entry for entry in os.listdir(place) if entry.startswith(name + "_") and entry.endswith(".h5")]
        with h5py.File(os.path.join(place, path), "r") as file:
            field = file[name][()]
        channels, n = field.shape[0], field.shape[1] // size
        field = field[:, : n * size, : n * size, : n * size].reshape(channels, n, size, n, size, n, size)
        parts.append(field.transpose(1, 3, 5, 0, 2, 4, 6).reshape(-1, channels, size, size, size))
    return np.concatenate(parts).astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--make", type=int, default=0, metavar="SNAPSHOTS")
    parser.add_argument("--edge", type=int, default=64, help="of a snapshot that is made up")
    parser.add_argument("--size", type=int, default=16, help="edge of a cube")
    args = parser.parse_args()
    result = os.path.join(args.folder, "cubes.npz")
    if os.path.exists(result):
        return
    if args.make and not os.path.exists(args.folder):
        make(args.folder, args.make, args.edge)
    x, y = cubes(args.folder, "u", args.size), cubes(args.folder, "b", args.size)
    # As Sapsan does: each channel with mean 0 and deviation 1.
    x, y = ((a - a.mean((0, 2, 3, 4), keepdims=True)) / a.std((0, 2, 3, 4), keepdims=True) for a in (x, y))
    # Written aside: trials may come at the same moment.
    aside = "%s.%d.npz" % (result, os.getpid())
    np.savez(aside, x=x, y=y.reshape(len(y), -1))
    os.rename(aside, result)


if __name__ == "__main__":
    main()
