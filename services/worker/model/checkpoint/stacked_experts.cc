// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/stacked_experts.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/model/checkpoint/stored_types.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/description/json_file.h"

namespace continuo::model {
namespace {

// A tensor of all experts, by the end of its name.
struct Stack {
  std::string_view end;    // "down_proj" below `block`
  std::string_view block;  // what is before it, and stays
  bool has_gate_and_up;    // else it is `down`
  bool is_bias;
};

constexpr Stack kStacks[] = {
    {"gate_up_proj", ".experts.", true, false},
    {"gate_up_proj_bias", ".experts.", true, true},
    {"down_proj", ".experts.", false, false},
    {"down_proj_bias", ".experts.", false, true},
    {"input_linear.weight", ".block_sparse_moe.", true, false},
    {"output_linear.weight", ".block_sparse_moe.", false, false},
};

// The tensor's kind; null where it is none of them.
const Stack* FindStack(std::string_view name, const StoredTensor& tensor) {
  for (const Stack& stack : kStacks) {
    if (!name.ends_with(stack.end)) continue;
    if (!name.substr(0, name.size() - stack.end.size()).ends_with(stack.block)) continue;
    const bool fits = tensor.shape.size() == (stack.is_bias ? 2 : 3) && tensor.shape[0] >= 1 &&
                      tensor.shape[0] <= kMaxExperts && !tensor.bytes.empty();
    return fits ? &stack : nullptr;
  }
  return nullptr;
}

// How a stack's elements are ordered.
struct StackOrder {
  bool by_inputs = false;    // matrices are [in, out]
  bool takes_turns = false;  // rows of gate and up do
};

// The views of one stack.
class Views {
 public:
  Views(std::string_view name, const StoredTensor& tensor, const Stack& stack,
        const StoredType& type, StackOrder order)
      : tensor_(tensor), stack_(stack), type_(type), order_(order) {
    prefix_ = std::string(name.substr(0, name.size() - stack.end.size()));
    if (!stack.block.ends_with("experts.")) prefix_ += "experts.";
  }

  // False where gate and up have no half each.
  bool AddTo(std::vector<std::pair<std::string, StoredTensor>>& views) const {
    const std::vector<int64_t>& shape = tensor_.shape;
    const bool is_turned = order_.by_inputs && !stack_.is_bias;
    const int64_t rows = is_turned ? shape[2] : shape[1];
    const int64_t columns = stack_.is_bias ? 1 : is_turned ? shape[1] : shape[2];
    const int64_t parts = stack_.has_gate_and_up ? 2 : 1;
    if (rows % parts != 0 || (is_turned && type_.block != 1)) return false;
    const size_t bytes = tensor_.bytes.size() / static_cast<size_t>(shape[0]);
    for (int64_t e = 0; e < shape[0]; ++e) {
      for (int64_t part = 0; part < parts; ++part) {
        const char* const own = parts == 1 ? "down_proj" : part == 0 ? "gate_proj" : "up_proj";
        StoredTensor view = tensor_;
        view.bytes = tensor_.bytes.subspan(static_cast<size_t>(e) * bytes, bytes);
        view.shape = {rows / parts};
        if (!stack_.is_bias) view.shape.push_back(columns);
        view.row_begin = order_.takes_turns ? part : part * rows / parts;
        view.row_step = order_.takes_turns ? parts : 1;
        view.column_stride = is_turned ? rows : 0;
        views.emplace_back(absl::StrCat(prefix_, e, ".", own, stack_.is_bias ? ".bias" : ".weight"),
                           std::move(view));
      }
    }
    return true;
  }

 private:
  const StoredTensor& tensor_;
  const Stack& stack_;
  const StoredType& type_;
  const StackOrder order_;
  std::string prefix_;
};

}  // namespace

absl::Status UnstackExperts(absl::flat_hash_map<std::string, StoredTensor>& tensors) {
  std::vector<std::pair<std::string, StoredTensor>> views;
  std::vector<std::string> replaced;
  for (const auto& [name, tensor] : tensors) {
    const Stack* const stack = FindStack(name, tensor);
    const StoredType* const type = FindStoredType(tensor.dtype);
    if (stack == nullptr || type == nullptr) continue;
    // Experts with biases are stored as [in, out], and so are Llama 4's, whose router tells them.
    const bool has_biases = stack->is_bias || tensors.contains(absl::StrCat(name, "_bias"));
    const std::string_view block = std::string_view(name).substr(0, name.rfind("experts."));
    const bool has_router = block.ends_with(".feed_forward.") &&
                            tensors.contains(absl::StrCat(std::string(block), "router.weight"));
    const StackOrder order = {.by_inputs = has_biases || has_router, .takes_turns = has_biases};
    if (Views(name, tensor, *stack, *type, order).AddTo(views)) replaced.push_back(name);
  }
  for (const std::string& name : replaced) tensors.erase(name);
  for (auto& [name, view] : views) {
    const auto [it, is_new] = tensors.emplace(name, std::move(view));
    if (!is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat("weights: two tensors would be ", ShowJson(it->first)));
    }
  }
  return absl::OkStatus();
}

}  // namespace continuo::model
