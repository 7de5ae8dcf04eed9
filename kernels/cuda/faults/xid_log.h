// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace continuo::kernels::cuda {

// One error that NVIDIA's driver reports of a device.
struct Xid {
  // What NVML itself says of a device that it does not reach, instead of an Xid.
  enum class Loss : uint8_t { kNone, kLost, kResetRequired };

  int device = 0;                        // as in cuda:DEVICE
  uint64_t number = 0;                   // 0 with a loss
  std::optional<uint32_t> gpu_instance;  // that it is of, with MIG
  absl::Duration at;                     // of Clock::Elapsed
  Loss loss = Loss::kNone;
};

// What the number means, in a few words; empty where it is not one of the common ones.
std::string_view XidText(uint64_t number);

// "Xid 79 on cuda:0: GPU has fallen off the bus"; "NVML: GPU is lost (cuda:0)".
std::string ToString(const Xid& xid);

// The first and the latest different Xids of each device, and which of all that come are worth a
// line. Xids of a device without a minute's pause are one cascade, and its first is likely the
// cause: it stays while there are later ones. However many come, kKept of a device are kept and
// kLines lines are asked for in a minute. Not thread-safe.
class XidLog {
 public:
  static constexpr size_t kKept = 4;
  static constexpr size_t kLines = 16;
  static constexpr absl::Duration kMinute = absl::Minutes(1);
  // What belongs to a failure has come so shortly before it.
  static constexpr absl::Duration kRecent = absl::Seconds(2);

  // Whether to log it: neither a repetition of one that was logged in the last minute, nor one of
  // too many.
  bool Add(const Xid& xid);
  // Whether one of these devices, of any where there are none, has come within kRecent before
  // `now`.
  bool HasRecent(std::span<const int> devices, absl::Duration now) const;
  // What goes behind the text of a failure at `now`: "; Xid 79 on cuda:0: …" for each, those first
  // that came first, with the age where it is more than kRecent; then how many of a cascade were
  // not kept: "; 5 more on cuda:0". Empty without any.
  std::string Reasons(absl::Duration now) const;

 private:
  struct Kept {
    Xid xid;
    absl::Duration last;    // that it came; xid.at is the first time where is_first
    bool is_first = false;  // of its device's last cascade
  };

  void Keep(const Xid& xid);
  bool IsWorthALine(const Xid& xid);

  std::vector<Kept> kept_;  // in the order in which they came, repetitions by their last time
  std::map<int, int> num_dropped_;  // of a device's last cascade
  std::vector<Xid> logged_;         // in the last minute
};

}  // namespace continuo::kernels::cuda
