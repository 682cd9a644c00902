"""Trains a small network with PyTorch DDP. Nothing in it is about hpcsweep but the file for metrics.

By hand: torchrun --nproc-per-node 2 train.py
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()

    # MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE are in the environment.
    # Some builds of PyTorch have no libuv, Debian's among them. A thousand ranks meet faster with it.
    os.environ.setdefault("USE_LIBUV", "0")
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()) if on_gpu else "cpu"
    torch.manual_seed(1)

    # Replace this by your data and your model.
    x = torch.linspace(-2, 2, 512).unsqueeze(1)
    data = TensorDataset(x, torch.sin(3 * x))
    model = nn.Sequential(nn.Linear(1, args.width), nn.Tanh(), nn.Linear(args.width, 1)).to(device)

    model = DistributedDataParallel(model, device_ids=[device.index] if on_gpu else None)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        total = torch.zeros(2, device=device)
        for inputs, targets in loader:
            inputs, targets = inputs.to(device), targets.to(device)
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.stack([loss.detach() * len(inputs), torch.tensor(float(len(inputs)), device=device)])
        dist.all_reduce(total)
        if rank == 0:
            line = {"epoch": epoch, "loss": (total[0] / total[1]).item()}
            print(line, flush=True)
            if os.environ.get("HPCSWEEP_METRICS"):
                with open(os.environ["HPCSWEEP_METRICS"], "a") as file:
                    file.write(json.dumps(line) + "\n")
    if rank == 0:
        folder = os.environ.get("HPCSWEEP_WORK_DIR", ".")
        torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
    # No rank leaves while another one is at work. `total` is still held: if gloo's thread were the last to hold it, that would need
    # Python's lock to free it, which the next call holds while it waits for the thread.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
