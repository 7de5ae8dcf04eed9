// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/base/confined_folder.h"
#include "services/base/mapped_file.h"
#include "services/worker/model/adapter/adapter_config.h"
#include "services/worker/model/checkpoint/safetensors.h"

namespace continuo::model {

// The matrices of one module of an adapter: its output gets factor · B (A x) more.
struct AdapterModule {
  std::string name;       // PEFT's: "model.layers.0.self_attn.q_proj"
  std::string canonical;  // as the names of ListWeights begin, where PEFT's has another prefix
  int rank = 0;
  double factor = 0;
  StoredTensor a, b;  // [rank, in] and [out, rank]; F32, F16 or BF16
};

// The number of modules that an adapter may have: each is looked for in the patterns of its
// configuration.
inline constexpr size_t kMaxAdapterModules = 4096;

// Pairs the tensors of an adapter_model.safetensors and gives them their ranks and factors. The
// names may say anything: InvalidArgument or Unimplemented name the tensor that has no pair,
// another shape or type, or is none of a LoRA matrix, or tell that there are too many. The modules
// are sorted by their names; the views stay those of `tensors`.
absl::StatusOr<std::vector<AdapterModule>> PairTensors(const AdapterConfig& config,
                                                       std::span<const StoredTensor> tensors);

// The files of an adapter as PEFT writes them. Immutable once open.
class AdapterFiles {
 public:
  // `dir` has adapter_config.json and adapter_model.safetensors; they may say anything. NotFound
  // names the missing file.
  static absl::StatusOr<AdapterFiles> Open(const std::string& dir);

  // The same of a folder that others may write to meanwhile: its path is as ConfinedFolder takes
  // it, and the matrices are copied. PermissionDenied where a path leads out of `root`;
  // InvalidArgument where adapter_model.safetensors has more than `max_bytes`.
  static absl::StatusOr<AdapterFiles> Read(const ConfinedFolder& root, const std::string& dir,
                                           int64_t max_bytes);
  // Returns a text that differs once one of the files has changed. Errors as Read.
  static absl::StatusOr<std::string> Stamp(const ConfinedFolder& root, const std::string& dir);

  const std::vector<AdapterModule>& modules() const { return modules_; }

 private:
  static absl::StatusOr<std::vector<AdapterModule>> Parse(std::string_view config,
                                                          std::span<const uint8_t> tensors);

  std::unique_ptr<MappedFile> file_;           // of Open
  std::unique_ptr<const std::string> copied_;  // of Read
  std::vector<AdapterModule> modules_;
};

}  // namespace continuo::model
