// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace continuo::cuda {

// One error that NVIDIA's driver reports of a device.
struct Xid {
  int device = 0;  // as in cuda:DEVICE
  uint64_t number = 0;
  std::optional<uint32_t> gpu_instance;  // that it is of, with MIG
  absl::Duration at;                     // of Clock::Elapsed
};

// What the number means, in a few words; empty where it is not one of the common ones.
std::string_view XidText(uint64_t number);

// "Xid 79 on cuda:0: GPU has fallen off the bus".
std::string ToString(const Xid& xid);

// The latest different Xids of each device, and which of all that come are worth a line. However
// many come, it keeps kKept for a device and asks for kLines lines in kRecent. Not thread-safe.
class XidLog {
 public:
  static constexpr size_t kKept = 4;
  static constexpr int kLines = 16;
  // Xids within this time belong together: to the failure that they cause, or as repetitions.
  static constexpr absl::Duration kRecent = absl::Minutes(1);

  // Whether to log it: neither a repetition of a recent one, nor one of too many.
  bool Add(const Xid& xid);
  // Whether one has come within kRecent before `now`.
  bool HasRecent(absl::Duration now) const;
  // What goes behind the text of a failure at `now`: "; Xid 79 on cuda:0: …" for each, those first
  // that came first, and how long ago where that was not recently. Empty without any.
  std::string Reasons(absl::Duration now) const;

 private:
  std::vector<Xid> xids_;  // in the order in which they came
  absl::Duration lines_since_ = -absl::InfiniteDuration();
  int num_lines_ = 0;  // since then
};

}  // namespace continuo::cuda
