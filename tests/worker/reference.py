"""Prints what PyTorch 2.11 makes of the models, optimizers and losses of the heavy worker: the values that
its unit tests compare with. Run with `python3 tests/worker/reference.py`; needs torch alone."""

import pathlib
import warnings
import zipfile
import zlib

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self, inputs, hidden, outputs, dropout=0.0, batch_norm=False):
        super().__init__()
        layers = []
        for width in hidden:
            layers.append(nn.Linear(inputs, width))
            if batch_norm:
                layers.append(nn.BatchNorm1d(width))
            layers.append(nn.ReLU())
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
            inputs = width
        layers.append(nn.Linear(inputs, outputs))
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x.flatten(1))


class Cnn(nn.Module):
    def __init__(self, shape, channels, outputs, dropout=0.0):
        super().__init__()
        (inputs, height, width), features = shape, []
        for c in channels:
            features += [nn.Conv2d(inputs, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            inputs, height, width = c, height // 2, width // 2
        self.features = nn.Sequential(*features)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(inputs * height * width, outputs)

    def forward(self, x):
        return self.classifier(self.dropout(self.features(x).flatten(1)))


class Cnn3d(nn.Module):
    def __init__(self, c, outputs):
        super().__init__()
        self.conv3d = nn.Conv3d(c, 2 * c, 2, stride=2, padding=1)
        self.conv3d2 = nn.Conv3d(2 * c, 2 * c, 2, stride=2, padding=1)
        self.conv3d3 = nn.Conv3d(2 * c, 4 * c, 2, stride=2, padding=1)
        self.linear = nn.Linear(4 * c, 8 * c)
        self.linear2 = nn.Linear(8 * c, outputs)

    def forward(self, x):
        x = F.relu(F.max_pool3d(self.conv3d(x), 2, padding=1))
        x = F.relu(F.max_pool3d(self.conv3d2(x), 2, padding=1))
        x = F.max_pool3d(self.conv3d3(x), 2).flatten(1)
        return self.linear2(F.relu(self.linear(x)))


class Block(nn.Module):
    """torchvision's BasicBlock."""

    def __init__(self, inputs, outputs, stride, downsample):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = downsample

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class Resnet(nn.Module):
    """torchvision's ResNet with layers [2, 2, 2, 2] and another stem."""

    def __init__(self, channels, width, outputs):
        super().__init__()
        self.inputs = width
        self.conv1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = self.stage(width, 1)
        self.layer2 = self.stage(2 * width, 2)
        self.layer3 = self.stage(4 * width, 2)
        self.layer4 = self.stage(8 * width, 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, outputs)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def stage(self, outputs, stride):
        downsample = None
        if stride != 1 or self.inputs != outputs:
            downsample = nn.Sequential(
                nn.Conv2d(self.inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        first = Block(self.inputs, outputs, stride, downsample)
        self.inputs = outputs
        return nn.Sequential(first, Block(outputs, outputs, 1, None))

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def crc(tensors):
    value = 0
    for tensor in tensors:
        value = zlib.crc32(tensor.detach().numpy().tobytes(), value)
    return f"0x{value:08x}"


def weighted(tensors):
    """A sum in which every place has another weight."""
    flat = torch.cat([tensor.detach().flatten().double() for tensor in tensors])
    return flat.dot((torch.arange(flat.numel(), dtype=torch.float64) + 1).sqrt()).item()


def numbers(shape, kind=torch.float64):
    """Numbers that need no generator: multiples of 1/64."""
    count = torch.Size(shape).numel()
    return (((torch.arange(count) * 37 + 11) % 129 - 64).to(kind) / 64).view(shape)


def model(name, seed, make, shape):
    torch.manual_seed(seed)
    net = make()
    names = [n for n, _ in net.named_parameters()] + [n for n, _ in net.named_buffers()]
    count = sum(p.numel() for p in net.parameters())
    after = torch.rand(1).item()
    print(name, crc(net.parameters()), count, f"names 0x{zlib.crc32(' '.join(names).encode()):08x}")
    print("   next random number", after)
    net = net.double()
    x = numbers([2, *shape])
    net.train()
    torch.manual_seed(5)
    print("   train", net(x).flatten()[:3].tolist())
    net.eval()
    print("   eval", net(x).flatten()[:3].tolist(), "buffers", sum(b.sum().item() for b in net.buffers()))


def optimizers():
    for kind in (torch.float32, torch.float64):
        for name, make in {
            "sgd": lambda p: torch.optim.SGD(p, 0.1),
            "sgd momentum": lambda p: torch.optim.SGD(p, 0.1, 0.9, 0.1, 0.01),
            "sgd nesterov": lambda p: torch.optim.SGD(p, 0.1, 0.9, 0, 0.01, True),
            "adam": lambda p: torch.optim.Adam(p, 1e-3),
            "adam decay": lambda p: torch.optim.Adam(p, 2e-3, (0.8, 0.95), 1e-6, 0.01),
            "adamw": lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.05),
            "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-2),
            "rmsprop all": lambda p: torch.optim.RMSprop(p, 1e-2, 0.9, 1e-6, 0.01, 0.9, True),
        }.items():
            params = [numbers(s, kind).clone().requires_grad_() for s in ([37], [5, 7], [3])]
            optimizer = make(params)
            for step in range(5):
                for i, p in enumerate(params):
                    p.grad = None
                    if i == 2 and step % 2 == 1:
                        continue
                    p.grad = numbers([p.numel() + step], kind)[step:].view(p.shape).clone() * (step - 1)
                optimizer.step()
            print(kind, name, weighted(params))


def clipping():
    for kind in (torch.float32, torch.float64):
        for most in (0.5, 100.0):
            params = [numbers(s, kind).clone().requires_grad_() for s in ([37], [5, 7], [3])]
            for p in params[:2]:
                p.grad = numbers(p.shape, kind)
            total = nn.utils.clip_grad_norm_(params, most).item()
            print("clip", kind, most, total, weighted([p.grad for p in params[:2]]))


def training():
    torch.manual_seed(7)
    net = Mlp(6, [16, 8], 3, batch_norm=True).double()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, 0.9)
    x, y = numbers([24, 6]), torch.arange(24) % 3
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    print("training", loss.item(), [p.flatten()[0].item() for p in net.parameters()])


class Script(nn.Module):
    """What a TorchScript module may have: batch normalisation, dropout, tied and frozen parameters."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.drop = nn.Dropout(0.25)
        self.last = nn.Linear(6, 3)
        self.tied = nn.Linear(4, 6)
        self.tied.weight = self.first.weight
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("seen", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.seen += x.shape[0]
        x = self.drop(torch.relu(self.norm(self.first(x) + self.tied(x))))
        return self.last(x) * self.frozen


def without_sources(path):
    """Takes out where the program was written: no test needs it."""
    with zipfile.ZipFile(path) as old:
        kept = [(i.filename, old.read(i)) for i in old.infolist() if not i.filename.endswith(".debug_pkl")]
    with zipfile.ZipFile(path, "w") as new:
        for name, data in kept:
            new.writestr(zipfile.ZipInfo(name), data)


def scripts(folder):
    torch.manual_seed(11)
    net, x = Script(), numbers([8, 4], torch.float32)
    torch.jit.script(net).save(f"{folder}/script.pt")
    torch.jit.trace(net.eval(), x).save(f"{folder}/traced.pt")
    without_sources(f"{folder}/script.pt")
    without_sources(f"{folder}/traced.pt")
    net = torch.jit.load(f"{folder}/script.pt")
    print("script", [n for n, _ in net.named_parameters()], [n for n, _ in net.named_buffers()])
    torch.manual_seed(11)
    net, x = Script().double(), numbers([8, 4])
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.1, 0.9)
    torch.manual_seed(5)
    for _ in range(10):
        optimizer.zero_grad()
        loss = (net(x) - numbers([8, 3])).square().mean()
        loss.backward()
        optimizer.step()
    print("   trained", loss.item(), weighted(trained), weighted([net.frozen, *net.buffers()]))
    print("   eval", net.eval()(x).flatten()[:3].tolist())


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # TorchScript is deprecated.
    model("mlp", 3, lambda: Mlp(12, [7, 5], 4, 0.1, True), [3, 2, 2])
    model("cnn", 0, lambda: Cnn([1, 28, 28], [8, 16], 10), [1, 28, 28])
    model("resnet18", 1, lambda: Resnet(3, 64, 10), [3, 16, 16])
    model("resnet18 narrow", 1, lambda: Resnet(1, 8, 3), [1, 8, 8])
    model("cnn3d", 2, lambda: Cnn3d(3, 12288), [3, 16, 16, 16])
    optimizers()
    clipping()
    training()
    scripts(pathlib.Path(__file__).parent / "scripts")
