// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "services/worker/model/checkpoint/fingerprint.h"

namespace continuo::model {

// Calls its argument with 0 … n - 1, on several threads.
using ParallelLoop = absl::FunctionRef<void(int n, absl::FunctionRef<void(int)>)>;

// Keeps packed weights in the files of a folder, by key, for the next start. A file holds its key
// and a digest of every 16 MiB, so a file that is truncated, damaged or for another key counts as
// missing. It holds numbers only: a forged one changes the model's answers and nothing else.
// Immutable; any thread may use it.
class WeightsCache {
 public:
  // `dir` is created where it is missing. All keys depend on `source`, the digest of the stored
  // weights.
  WeightsCache(std::string dir, const Digest128& source);

  // Fills `bytes` with the bytes written for `key`. NotFound where there is no such file; DataLoss
  // where it is damaged, and `bytes` then hold anything.
  absl::Status Read(const std::string& key, std::span<uint8_t> bytes, ParallelLoop loop) const;
  // Writes a file, which appears whole or not at all.
  absl::Status Write(const std::string& key, std::span<const uint8_t> bytes,
                     ParallelLoop loop) const;
  std::string PathOf(const std::string& key) const;

 private:
  Digest128 KeyDigest(const std::string& key) const;

  const std::string dir_;
  const Digest128 source_;
};

}  // namespace continuo::model
