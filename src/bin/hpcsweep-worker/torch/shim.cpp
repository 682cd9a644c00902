// What tch leaves out of libtorch.

#include <torch/torch.h>
