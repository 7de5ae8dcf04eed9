// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "services/worker/model/checkpoint/fingerprint.h"

namespace continuo::model {

// Calls its argument with 0 … n - 1, by as many threads as there are.
using ParallelLoop = absl::FunctionRef<void(int n, absl::FunctionRef<void(int)>)>;

// Runs of bytes in the files of a folder, by key: what packing weights has made, for the next
// start. A file holds its key, and a digest of every 16 MiB, so one that is cut short, damaged or
// of something else counts as none. What it holds are numbers: whoever writes one on purpose
// changes what the model says, and nothing else. Immutable; any thread.
class WeightsCache {
 public:
  // `dir` is made where it is missing. `source` is what all keys depend on: the digest of the
  // stored weights.
  WeightsCache(std::string dir, const Digest128& source);

  // Fills `bytes` with what was written for `key`. NotFound where there is no such file, DataLoss
  // where it is not what was written; `bytes` is spoilt then.
  absl::Status Read(const std::string& key, std::span<uint8_t> bytes, ParallelLoop loop) const;
  // A file appears whole or not at all.
  absl::Status Write(const std::string& key, std::span<const uint8_t> bytes,
                     ParallelLoop loop) const;
  std::string PathOf(const std::string& key) const;

 private:
  Digest128 KeyDigest(const std::string& key) const;

  const std::string dir_;
  const Digest128 source_;
};

}  // namespace continuo::model
