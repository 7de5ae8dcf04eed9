// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/worker/model/description/config.h"

namespace continuo::model {

// The XXH3-128 digest of a run of bytes, the high half first.
struct Digest128 {
  uint64_t high = 0, low = 0;
  friend bool operator==(const Digest128&, const Digest128&) = default;
};

Digest128 DigestOf(std::span<const uint8_t> bytes);
Digest128 DigestOf(std::string_view text);
std::string ToHex(const Digest128& digest);  // 32 lower-case digits

// A stored tensor as the weights' digest sees it, whatever file it lies in.
struct TensorDigest {
  std::string name;
  std::string dtype;  // as safetensors names it
  std::vector<int64_t> shape;
  Digest128 bytes;
};

// Joins the digests of all tensors that the model reads; their order does not count.
Digest128 WeightsDigest(std::vector<TensorDigest> tensors);

// The model's parts of the worker's fingerprint. Threads, ranks, batch limits and the size of the
// KV cache are not in it (exactness: fingerprint).
struct FingerprintParts {
  Digest128 weights;
  std::string config;         // ConfigSummary()
  std::string weight_format;  // of weights and activations
  std::string kv_format;
  std::string backend;  // Device::name(): device and instruction-set path
};

// Writes the fields of the configuration that a token depends on, generation defaults and context
// length included, as one line of text.
std::string ConfigSummary(const ModelConfig& config);

// Returns 32 hexadecimal digits over `parts`, kArithmeticVersion and `text_parts`, which are the
// text version and the digests of tokenizer and chat template; their order counts.
std::string MakeFingerprint(const FingerprintParts& parts, std::span<const std::string> text_parts);

}  // namespace continuo::model
