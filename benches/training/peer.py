"""What the bench of training is compared with: PyTorch, on orders from a socket.

An order is a line of whole numbers, an answer a line of seconds. Between two orders it sleeps.
"""

import os
import socket
import sys
import time

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def orders(path):
    end = socket.socket(socket.AF_UNIX)
    end.connect(path)
    lines = end.makefile("rw")
    for line in lines:
        answer = yield [int(word) for word in line.split()]
        lines.write(" ".join("%e" % seconds for seconds in answer) + "\n")
        lines.flush()
        yield


def serve(path, carry_out):
    asked = orders(path)
    for order in asked:
        asked.send(carry_out(*order))


def timed(call, times):
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times


def cnn(channels, outputs):
    """`cnn` of hpcsweep, for images of 3 x 32 x 32."""
    from torch import nn

    features, inputs, side = [], 3, 32
    for count in channels:
        features += [nn.Conv2d(inputs, count, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        inputs, side = count, side // 2
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(inputs * side * side, outputs))


def resnet18(width, outputs):
    """`resnet18` of hpcsweep: torchvision's with a first convolution of 3x3 and no first pooling."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None
            if stride != 1 or inputs != outputs:
                conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
                self.downsample = nn.Sequential(conv, nn.BatchNorm2d(outputs))

        def forward(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            y += x if self.downsample is None else self.downsample(x)
            return self.relu(y)

    layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    inputs = width
    for stage, stride in enumerate([1, 2, 2, 2]):
        count = width << stage
        layers += [Block(inputs, count, stride), Block(count, count, 1)]
        inputs = count
    pool = nn.AdaptiveAvgPool2d((1, 1))
    return nn.Sequential(*layers, pool, nn.Flatten(), nn.Linear(inputs, outputs))


def model_of(name):
    return resnet18(64, 10) if name == "resnet18" else cnn([32, 64, 128], 10)


def training(model, x, y):
    """A step of DDP, as its tutorial has it."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss = criterion(ddp(x), y)
        loss.item()
        loss.backward()
        optimizer.step()

    return step


def step(path, name):
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(1)
    x, y = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))
    go = training(model_of(name), x, y)

    def carry_out(steps):
        go()
        return [timed(go, 1) for _ in range(steps)]

    serve(path, carry_out)


def metrics_object(path):
    import torch

    torch.distributed.init_process_group("gloo")
    metrics = {"metric_%d" % i: i * 0.37 for i in range(20)}
    found = [None] * WORLD

    def carry_out(_what, _bytes, calls):
        timed(lambda: torch.distributed.all_gather_object(found, metrics), calls // 10 + 1)
        return [timed(lambda: torch.distributed.all_gather_object(found, metrics), calls)]

    serve(path, carry_out)


def metrics_socket(path):
    """The module of hpcsweep, in a trial with `sync = "mpi"`."""
    import hpcsweep

    metrics = {"metric_%d" % i: i * 0.37 for i in range(20)}

    def carry_out(_what, _bytes, calls):
        sync = lambda: hpcsweep.mp_sync_dict(metrics)  # noqa: E731
        timed(sync, calls // 10 + 1)
        return [timed(sync, calls)]

    serve(path, carry_out)


def sampler(path):
    """Order 0: the indices of rank 0 of 8; order 1: the permutation alone."""
    import torch
    from torch.utils.data import DistributedSampler

    torch.set_num_threads(1)

    def carry_out(what, count, times):
        dealt = DistributedSampler(range(count), 8, 0)
        generator = torch.Generator()

        def one():
            if what == 0:
                dealt.set_epoch(dealt.epoch + 1)
                return list(dealt)
            generator.manual_seed(1)
            return torch.randperm(count, generator=generator)

        return [timed(one, times)]

    serve(path, carry_out)


def start(data, name, began):
    """Prints when each part was done: the interpreter, torch, the ranks, the data, the model, the step."""
    done = []

    def mark():
        done.append("%e" % (time.time() - float(began)))

    mark()
    import torch

    mark()
    torch.set_num_threads(1)
    if WORLD > 1:
        torch.distributed.init_process_group("gloo")
    mark()
    import numpy

    arrays = numpy.load(data)
    x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
    mark()
    model = model_of(name)
    if WORLD > 1:
        go = training(model, x, y)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        criterion = torch.nn.CrossEntropyLoss()

        def go():
            criterion(model(x), y).backward()
            optimizer.step()

    mark()
    go()
    mark()
    if RANK == 0:
        print(" ".join(done))


if __name__ == "__main__":
    {"step": step, "object": metrics_object, "socket": metrics_socket, "sampler": sampler, "start": start}[
        sys.argv[1]
    ](*sys.argv[2:])
