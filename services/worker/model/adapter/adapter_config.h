// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace re2 {
class RE2;
}

namespace continuo::model {

// Ranks that an adapter may have.
inline constexpr int kMaxAdapterRank = 256;

// The size of an adapter_config.json, in bytes, that is read.
inline constexpr int64_t kMaxAdapterConfigBytes = 1 << 20;

// A key of rank_pattern or alpha_pattern: a regular expression for a module's name or its end.
struct AdapterPattern {
  std::string key;
  std::shared_ptr<const re2::RE2> expression;
  double value;
};

// The adapter_config.json of PEFT (0.21) for LoRA: rank and factor of each module. Immutable;
// thread-safe.
class AdapterConfig {
 public:
  // Parses hostile text. InvalidArgument or Unimplemented name the field and what is supported: a
  // field that is not known, or asks for more than A, B and a factor, is refused unless it is null,
  // false or empty.
  static absl::StatusOr<AdapterConfig> Parse(std::string_view text);

  // The rank of the matrices of a module, and the factor of their product.
  struct Module {
    int rank = 0;
    double factor = 0;  // alpha / rank, or alpha / √rank
  };
  // `module` is PEFT's name, "model.layers.0.self_attn.q_proj". InvalidArgument where the module is
  // none of target_modules or of layers_to_transform, or where keys of a pattern contradict each
  // other. A regular expression in target_modules and the word "all-linear" leave it to the files
  // which modules there are.
  absl::StatusOr<Module> Find(std::string_view module) const;

 private:
  int rank_ = 0;
  double alpha_ = 0;
  bool by_root_ = false;  // use_rslora
  std::optional<std::vector<std::string>> targets_;
  std::optional<std::vector<int64_t>> layers_;
  std::vector<AdapterPattern> rank_pattern_, alpha_pattern_;
};

}  // namespace continuo::model
