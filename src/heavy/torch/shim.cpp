// What the crate tch leaves out of libtorch: in-place arithmetic with a factor, gradients that are put
// in place and hooks behind them, buffers of TorchScript modules, autocast for any device,
// deterministic algorithms.
//
// Every function that can fail returns null or a text that `hpcsweep_torch_free` frees; no exception
// leaves this file. A `Tensor *` of tch is an `at::Tensor *`. `shim.rs` is the other half.

#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/serialization/import.h>

using at::Tensor;
using torch::jit::Module;

namespace {

char *text(const char *from) { return strdup(from); }

char *protect(const std::function<void()> &work) {
  try {
    work();
    return nullptr;
  } catch (const c10::Error &error) {
    return text(error.what_without_backtrace());
  } catch (const std::exception &error) {
    return text(error.what());
  } catch (...) {
    return text("an unknown C++ exception");
  }
}

using Ready = void (*)(const void *context, size_t index);

struct Hook : torch::autograd::PostAccumulateGradHook {
  Ready ready;
  const void *context;
  size_t index;

  Hook(Ready ready, const void *context, size_t index)
      : ready(ready), context(context), index(index) {}
  void operator()(const Tensor &) override { ready(context, index); }
};

// Whether a layer that differs between training and evaluation got a constant instead of the module's
// mode: what tracing leaves of it. A scripted program may ask for dropout always; it checks its
// arguments by an `If`, which a trace never has.
bool has_fixed_mode(at::ArrayRef<torch::jit::Block *> blocks, bool has_if) {
  for (auto *block : blocks) {
    for (auto *node : block->nodes()) {
      const std::string kind = node->kind().toQualString();
      const bool is_norm = kind == "aten::batch_norm";
      const bool is_dropout = kind == "aten::dropout" || kind == "aten::feature_dropout" ||
                              kind == "aten::alpha_dropout" ||
                              kind == "aten::feature_alpha_dropout";
      if (is_norm || is_dropout) {
        const auto place = node->schema().argumentIndexWithName(is_norm ? "training" : "train");
        const auto mode = torch::jit::toIValue(node->input(place.value()));
        if (mode && !(is_dropout && mode->toBool() && has_if)) {
          return true;
        }
      }
      if (has_fixed_mode(node->blocks(), has_if)) {
        return true;
      }
    }
  }
  return false;
}

bool has_if(at::ArrayRef<torch::jit::Block *> blocks) {
  for (auto *block : blocks) {
    for (auto *node : block->nodes()) {
      if (node->kind() == torch::jit::prim::If || has_if(node->blocks())) {
        return true;
      }
    }
  }
  return false;
}

using Take = void (*)(void *list, const char *name, Tensor *tensor);

} // namespace

extern "C" {

void hpcsweep_torch_free(char *text) { free(text); }

// --- arithmetic -----------------------------------------------------------------------------------

char *hpcsweep_torch_add(Tensor *to, const Tensor *other, double factor) {
  return protect([&] { to->add_(*other, factor); });
}

char *hpcsweep_torch_addcmul(Tensor *to, const Tensor *a, const Tensor *b, double factor) {
  return protect([&] { to->addcmul_(*a, *b, factor); });
}

char *hpcsweep_torch_addcdiv(Tensor *to, const Tensor *a, const Tensor *b, double factor) {
  return protect([&] { to->addcdiv_(*a, *b, factor); });
}

// `a + factor * b`.
char *hpcsweep_torch_plus(const Tensor *a, const Tensor *b, double factor, Tensor **sum) {
  return protect([&] { *sum = new Tensor(a->add(*b, factor)); });
}

// --- gradients ------------------------------------------------------------------------------------

// Null takes the gradient away.
char *hpcsweep_torch_set_grad(Tensor *tensor, const Tensor *grad) {
  return protect([&] { tensor->mutable_grad() = grad ? *grad : Tensor(); });
}

char *hpcsweep_torch_on_grad(Tensor *tensor, Ready ready, const void *context, size_t index) {
  return protect([&] {
    torch::autograd::impl::set_post_acc_grad_hooks(
        *tensor, std::make_unique<Hook>(ready, context, index));
  });
}

char *hpcsweep_torch_no_hook(Tensor *tensor) {
  return protect([&] { torch::autograd::impl::set_post_acc_grad_hooks(*tensor, nullptr); });
}

// The same for two tensors that are one.
const void *hpcsweep_torch_identity(const Tensor *tensor) { return tensor->unsafeGetTensorImpl(); }

// --- mixed precision ------------------------------------------------------------------------------

// `device` as tch counts: -1 the CPU, from 0 CUDA. Returns what was set before in `was_on`, `was_kind`.
char *hpcsweep_torch_autocast_enter(int device, bool is_bfloat, bool *was_on, int *was_kind) {
  return protect([&] {
    const auto type = device < 0 ? at::kCPU : at::kCUDA;
    *was_on = at::autocast::is_autocast_enabled(type);
    *was_kind = static_cast<int>(at::autocast::get_autocast_dtype(type));
    at::autocast::set_autocast_enabled(type, true);
    at::autocast::set_autocast_dtype(type, is_bfloat ? at::kBFloat16 : at::kHalf);
    at::autocast::increment_nesting();
  });
}

char *hpcsweep_torch_autocast_leave(int device, bool was_on, int was_kind) {
  return protect([&] {
    const auto type = device < 0 ? at::kCPU : at::kCUDA;
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
    at::autocast::set_autocast_enabled(type, was_on);
    at::autocast::set_autocast_dtype(type, static_cast<at::ScalarType>(was_kind));
  });
}

// Where an operation has no deterministic algorithm, libtorch says so once on standard error and takes the other.
char *hpcsweep_torch_deterministic() {
  return protect([] {
    auto &context = at::globalContext();
    context.setDeterministicCuDNN(true);
    context.setDeterministicAlgorithms(true, /*warn_only=*/true);
    // What is uninitialised is never read here.
    context.setDeterministicFillUninitializedMemory(false);
  });
}

// --- TorchScript ----------------------------------------------------------------------------------

char *hpcsweep_torch_load(const char *path, int device, Module **module) {
  return protect([&] {
    const auto place = device < 0 ? at::Device(at::kCPU)
                                  : at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    *module = new Module(torch::jit::load(path, place));
  });
}

void hpcsweep_torch_unload(Module *module) { delete module; }

char *hpcsweep_torch_is_traced(const Module *module, bool *is_traced) {
  return protect([&] {
    auto graph = module->get_method("forward").graph()->copy();
    torch::jit::Inline(*graph);
    *is_traced = has_fixed_mode({graph->block()}, has_if({graph->block()}));
  });
}

// `take` owns the tensors it is given.
char *hpcsweep_torch_parameters(const Module *module, void *list, Take take) {
  return protect([&] {
    for (const auto &named : module->named_parameters()) {
      take(list, named.name.c_str(), new Tensor(named.value));
    }
  });
}

char *hpcsweep_torch_buffers(const Module *module, void *list, Take take) {
  return protect([&] {
    for (const auto &named : module->named_buffers()) {
      take(list, named.name.c_str(), new Tensor(named.value));
    }
  });
}

char *hpcsweep_torch_train(Module *module, bool on) {
  return protect([&] { module->train(on); });
}

char *hpcsweep_torch_forward(Module *module, const Tensor *x, Tensor **y) {
  return protect([&] {
    const auto result = module->forward({*x});
    TORCH_CHECK(result.isTensor(), "the module's forward returns no tensor");
    *y = new Tensor(result.toTensor());
  });
}

char *hpcsweep_torch_save(const Module *module, const char *path) {
  return protect([&] { module->save(path); });
}

} // extern "C"
