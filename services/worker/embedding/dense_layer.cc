// SPDX-License-Identifier: Apache-2.0
#include "services/worker/embedding/dense_layer.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/worker/embedding/host_math.h"
#include "services/worker/model/checkpoint/fingerprint.h"

namespace continuo::embedding {
namespace {

double Activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kIdentity:
      return x;
    case Activation::kTanh:
      return Tanh(x);
    case Activation::kGelu:
      return Gelu(x);
    case Activation::kGeluTanh:
      return GeluTanh(x);
  }
  CONTINUO_CHECK(!"an activation that is not known");
}

}  // namespace

std::vector<float> DenseLayer::Apply(std::span<const float> x) const {
  std::vector<float> result(static_cast<size_t>(out));
  const auto columns = static_cast<size_t>(in);
  for (size_t i = 0; i < result.size(); ++i) {
    const double value =
        Dot({weight.data() + i * columns, columns}, x) + static_cast<double>(bias[i]);
    result[i] = static_cast<float>(Activate(activation, value));
  }
  return result;
}

std::string DenseLayer::Summary() const {
  return absl::StrCat(" dense=", in, ",", out, ",", static_cast<int>(activation), " ",
                      DigestOfValues(weight), " ", DigestOfValues(bias));
}

std::string DigestOfValues(std::span<const float> values) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(values.data());
  return model::ToHex(
      model::DigestOf(std::span<const uint8_t>(bytes, values.size() * sizeof(float))));
}

}  // namespace continuo::embedding
