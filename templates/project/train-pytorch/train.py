"""Trains a network on handwritten digits: the loop of hpcsweep's `[train]` in PyTorch, to be changed.

By hand: python3 train.py --lr 0.03, or torchrun --nproc-per-node 2 train.py. An attempt that was cut off continues from the
last epoch that its checkpoint folder has.
"""

import argparse
import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

HERE = os.path.dirname(os.path.abspath(__file__))
RANK = int(os.environ.get("RANK", 0))
WORLD = int(os.environ.get("WORLD_SIZE", 1))


def settings():
    """What `[train]` has under the same names."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=os.path.join(HERE, "digits.npz"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="samples of each rank in a step")
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fraction", type=float, default=0.2, help="part of the data that validates")
    return parser.parse_args()


class Cnn(nn.Module):
    """A 3 x 3 convolution, ReLU and a pooling for each number of channels, then one linear layer."""

    def __init__(self, shape, channels, outputs):
        super().__init__()
        (inputs, height, width), features = shape, []
        for c in channels:
            features += [nn.Conv2d(inputs, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            inputs, height, width = c, height // 2, width // 2
        self.features = nn.Sequential(*features)
        self.classifier = nn.Linear(inputs * height * width, outputs)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def load(args):
    """All samples as one data set, and the numbers of those that are learnt from and of those that validate."""
    arrays = np.load(args.data)
    x = torch.from_numpy(arrays["x"].astype(np.float32)) * 0.0625
    y = torch.from_numpy(arrays["y"].astype(np.int64))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(args.seed)).tolist()
    count = len(x) - int(len(x) * args.fraction)
    return TensorDataset(x, y), order[:count], order[count:]


def make_optimizer(args, model):
    if args.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=args.lr)
    return torch.optim.Adam(model.parameters(), lr=args.lr)


# Reduced tensors, so that gloo's thread is never the last to hold one: to free it, that needs Python's lock, which the end of the
# process group holds while it waits for the thread.
REDUCED = []


class Means:
    """The mean loss of all samples, and the part of them that was told right; over all ranks."""

    def __init__(self, device):
        self.sums = torch.zeros(3, dtype=torch.float64, device=device)

    def add(self, loss, outputs, targets):
        right = (outputs.argmax(1) == targets).sum()
        self.sums += torch.stack([loss.detach().double() * len(targets), right.double(), right.new_tensor(len(targets)).double()])

    def get(self):
        if WORLD > 1:
            dist.all_reduce(self.sums)
            REDUCED.append(self.sums)
        loss, right, samples = self.sums.tolist()
        return loss / samples, right / samples, samples


def learn(model, loader, optimizer, schedule, device):
    """One epoch: its means, and the learning rate of its last step."""
    model.train()
    means, rate = Means(device), 0.0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        outputs = model(x)
        loss = F.cross_entropy(outputs, y)
        if not torch.isfinite(loss):
            raise SystemExit("the loss is no number")
        optimizer.zero_grad()
        loss.backward()
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        schedule.step()
        means.add(loss, outputs, y)
    return means.get(), rate


@torch.no_grad()
def measure(model, data, items, size, device):
    """The means of some samples, each of which one rank looks at."""
    model.eval()
    means = Means(device)
    for x, y in DataLoader(Subset(data, items[RANK::WORLD]), batch_size=size):
        x, y = x.to(device), y.to(device)
        outputs = model(x)
        means.add(F.cross_entropy(outputs, y), outputs, y)
    return means.get()


def say(line):
    """A line of metrics, from rank 0."""
    if RANK == 0:
        print(json.dumps(line), flush=True)
        if os.environ.get("HPCSWEEP_METRICS"):
            with open(os.environ["HPCSWEEP_METRICS"], "a") as file:
                file.write(json.dumps(line) + "\n")


def save(value, path):
    """Whole or not at all."""
    torch.save(value, path + ".new")
    os.replace(path + ".new", path)


def main():
    args = settings()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    if WORLD > 1:
        # Some builds of PyTorch have no libuv, Debian's among them. A thousand ranks meet faster with it.
        os.environ.setdefault("USE_LIBUV", "0")
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    data, train, validation = load(args)

    torch.manual_seed(args.seed)
    plain = Cnn(data.tensors[0].shape[1:], [8, 16], 10).to(device)
    model = DistributedDataParallel(plain) if WORLD > 1 else plain
    optimizer = make_optimizer(args, plain)
    # torch's own sampler, also of one rank: its order depends on seed and epoch alone, so that a resumed run has it too.
    sampler = DistributedSampler(Subset(data, train), num_replicas=WORLD, rank=RANK, seed=args.seed)
    loader = DataLoader(Subset(data, train), batch_size=args.batch_size, sampler=sampler)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.lr, total_steps=len(loader) * args.epochs, cycle_momentum=False
    )

    folder = os.environ.get("HPCSWEEP_CHECKPOINT_DIR", os.path.join(HERE, "checkpoint"))
    os.makedirs(folder, exist_ok=True)
    last = os.path.join(folder, "last.pt")
    state = {"epoch": 0, "lines": [], "best": None, "best_epoch": 0, "best_weights": None}
    if os.path.exists(last):
        state = torch.load(last, map_location=device)
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        for line in state["lines"]:
            # Each attempt reports the whole curve.
            say(line)
    while state["epoch"] < args.epochs:
        begin, epoch = time.time(), state["epoch"]
        sampler.set_epoch(epoch)
        (train_loss, train_accuracy, samples), rate = learn(model, loader, optimizer, schedule, device)
        seconds = time.time() - begin
        val_loss, val_accuracy, _ = measure(plain, data, validation, args.batch_size, device)
        line = {"epoch": epoch + 1, "step": (epoch + 1) * len(loader), "train_loss": train_loss}
        line.update(train_accuracy=train_accuracy, val_loss=val_loss, val_accuracy=val_accuracy, lr=rate)
        line.update(seconds=time.time() - begin, samples_per_second=samples / seconds)
        say(line)
        if state["best"] is None or val_accuracy > state["best"]:
            weights = {name: value.cpu().clone() for name, value in plain.state_dict().items()}
            state.update(best=val_accuracy, best_epoch=epoch + 1, best_weights=weights)
        state.update(epoch=epoch + 1, lines=state["lines"] + [line])
        state.update(model=plain.state_dict(), optimizer=optimizer.state_dict(), schedule=schedule.state_dict())
        if RANK == 0:
            save(state, last)

    plain.load_state_dict(state["best_weights"])
    test_loss, test_accuracy, _ = measure(plain, data, validation, args.batch_size, device)
    say({"stage": "evaluate", "test_loss": test_loss, "test_accuracy": test_accuracy})
    if RANK == 0:
        weights = os.path.join(os.environ.get("HPCSWEEP_WORK_DIR", HERE), "model.pt")
        save(state["best_weights"], weights)
        result = {"epochs": state["epoch"], "best_epoch": state["best_epoch"], "best_val_accuracy": state["best"]}
        result.update(test_loss=test_loss, test_accuracy=test_accuracy, weights=weights)
        if os.environ.get("HPCSWEEP_RESULT"):
            with open(os.environ["HPCSWEEP_RESULT"], "w") as file:
                json.dump(result, file)
    if WORLD > 1:
        # No rank leaves while another one is at work.
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
