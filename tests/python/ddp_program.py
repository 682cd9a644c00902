"""A script for torchrun: a linear layer, trained by DistributedDataParallel over gloo.

Each rank has half of the samples; the weights come out equal, and as those of one process that has all.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(model, inputs, targets):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
inputs, targets = torch.randn(8, 3, dtype=torch.float64), torch.randn(8, 1, dtype=torch.float64)
alone = torch.nn.Linear(3, 1, dtype=torch.float64)
model = torch.nn.Linear(3, 1, dtype=torch.float64)
model.load_state_dict(alone.state_dict())
train(DistributedDataParallel(model), inputs[rank::world], targets[rank::world])
train(alone, inputs, targets)
all_weights = [torch.empty_like(model.weight) for _ in range(world)]
own = model.weight.detach()
dist.all_gather(all_weights, own)
is_equal = "equal" if all(torch.equal(weights, model.weight) for weights in all_weights) else "unequal"
as_one = "as" if torch.allclose(model.weight, alone.weight, rtol=1e-12, atol=1e-12) else "not as"
print("rank %d of %d: weights %s, %s one rank's" % (rank, world, is_equal, as_one), flush=True)
# `own` is still held: if gloo's thread were the last to hold it, that would need Python's lock to free it, which the last call holds
# while it waits for the thread.
dist.barrier()
dist.destroy_process_group()
