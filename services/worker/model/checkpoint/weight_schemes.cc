// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/weight_schemes.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/check.h"

namespace continuo::model {
namespace {

using kernels::DType;
using kernels::WeightType;

// The head decides which token wins, so quantised schemes keep the vocabulary more exact than the
// layers. Four bits lose most in the matrices of values and in those that end MLPs. A rounded
// router would pick other experts, so routers stay f32. Experts of fp8 are int8: their launch reads
// the numbers of rows on the device.
constexpr WeightScheme kSchemes[] = {
    {.dense = WeightType::kF32,
     .sensitive = WeightType::kF32,
     .experts = WeightType::kF32,
     .vocabulary = WeightType::kF32,
     .router = WeightType::kF32,
     .activations = DType::kF32},
    {.dense = WeightType::kBF16,
     .sensitive = WeightType::kBF16,
     .experts = WeightType::kBF16,
     .vocabulary = WeightType::kBF16,
     .router = WeightType::kBF16,
     .activations = DType::kBF16},
    {.dense = WeightType::kF16,
     .sensitive = WeightType::kF16,
     .experts = WeightType::kF16,
     .vocabulary = WeightType::kF16,
     .router = WeightType::kF16,
     .activations = DType::kF16},
    {.dense = WeightType::kInt8,
     .sensitive = WeightType::kInt8,
     .experts = WeightType::kInt8,
     .vocabulary = WeightType::kInt8,
     .router = WeightType::kF32},
    {.dense = WeightType::kInt4,
     .sensitive = WeightType::kInt8,
     .experts = WeightType::kInt4,
     .vocabulary = WeightType::kInt8,
     .router = WeightType::kF32},
    {.dense = WeightType::kFp8,
     .sensitive = WeightType::kFp8,
     .experts = WeightType::kInt8,
     .vocabulary = WeightType::kBF16,
     .router = WeightType::kF32,
     .needs = "CUDA devices of compute capability 9.0"},
    {.dense = WeightType::kStored,
     .sensitive = WeightType::kStored,
     .experts = WeightType::kStored,
     .vocabulary = WeightType::kStored,
     .router = WeightType::kF32,
     .needs = "the CPU"},
};

}  // namespace

std::span<const WeightScheme> WeightSchemes() { return kSchemes; }

const WeightScheme& SchemeOf(WeightType dense) {
  for (const WeightScheme& scheme : kSchemes) {
    if (scheme.dense == dense) return scheme;
  }
  CONTINUO_CHECK(!"a weight type without a scheme");
}

absl::StatusOr<const WeightScheme*> FindWeightScheme(const std::string& name, DType auto_type) {
  if (name == "auto") {
    return &SchemeOf(auto_type == DType::kBF16 ? WeightType::kBF16 : WeightType::kF32);
  }
  for (const WeightScheme& scheme : kSchemes) {
    if (name == scheme.name()) return &scheme;
  }
  std::vector<std::string> names = WeightSchemeNames();
  const std::string last = names.back();
  names.pop_back();
  return absl::InvalidArgumentError(absl::StrCat("weights is \"", name, "\"; it must be ",
                                                 absl::StrJoin(names, ", "), " or ", last));
}

std::vector<std::string> WeightSchemeNames() {
  std::vector<std::string> names = {"auto"};
  for (const WeightScheme& scheme : kSchemes) names.emplace_back(scheme.name());
  return names;
}

}  // namespace continuo::model
