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

// An error that NVIDIA's driver reports for a device.
struct Xid {
  // NVML's own report that it does not reach a device, instead of an Xid.
  enum class Loss : uint8_t { kNone, kLost, kResetRequired };

  int device = 0;                        // as in cuda:DEVICE
  uint64_t number = 0;                   // 0 for a loss
  std::optional<uint32_t> gpu_instance;  // with MIG, the instance that it belongs to
  absl::Duration at;                     // time of Clock::Elapsed
  Loss loss = Loss::kNone;
};

// Returns the meaning of a number in a few words, or an empty text where it is not a common one.
std::string_view XidText(uint64_t number);

// Returns "Xid 79 on cuda:0: GPU has fallen off the bus", or "NVML: GPU is lost (cuda:0)".
std::string ToString(const Xid& xid);

// Keeps the first and the latest different Xids of each device, and decides which ones are logged.
// Xids of a device without a pause of a minute are one cascade, and its first is likely the cause:
// it stays while later ones come. However many come, at most kKept are kept for a device, and at
// most kLines are logged in a minute. Not thread-safe.
class XidLog {
 public:
  static constexpr size_t kKept = 4;
  static constexpr size_t kLines = 16;
  static constexpr absl::Duration kMinute = absl::Minutes(1);
  // An Xid that belongs to a failure came at most this long before it.
  static constexpr absl::Duration kRecent = absl::Seconds(2);

  // Adds an Xid and returns whether to log it: it neither repeats one that was logged in the last
  // minute, nor is it one of too many.
  bool Add(const Xid& xid);
  // Returns whether one of these devices, or any device if there are none, had an Xid within
  // kRecent before `now`.
  bool HasRecent(std::span<const int> devices, absl::Duration now) const;
  // Returns the text to append to a failure at `now`: "; Xid 79 on cuda:0: …" for each kept Xid,
  // oldest first, with its age where that is more than kRecent; then how many of a cascade were
  // dropped: "; 5 more on cuda:0". Empty without any.
  std::string Reasons(absl::Duration now) const;

 private:
  struct Kept {
    Xid xid;
    absl::Duration last;    // last time that it came; xid.at is the first time where is_first
    bool is_first = false;  // it is the first of its device's last cascade
  };

  void Keep(const Xid& xid);
  bool IsWorthALine(const Xid& xid);

  std::vector<Kept> kept_;          // in order of arrival; repetitions count by their last time
  std::map<int, int> num_dropped_;  // from each device's last cascade
  std::vector<Xid> logged_;         // those of the last minute
};

}  // namespace continuo::kernels::cuda
