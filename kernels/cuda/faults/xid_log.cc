// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/faults/xid_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace continuo::kernels::cuda {
namespace {

struct Known {
  uint64_t number;
  std::string_view text;
};

// From NVIDIA's catalogue, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html,
// without the entries for graphics, video and GPUs that are not made for data centres. Ascending.
constexpr Known kKnown[] = {
    {8, "GPU stopped processing"},
    {13, "graphics engine exception, as of an illegal access or instruction of a kernel"},
    {31, "GPU memory page fault"},
    {32, "corrupted push buffer stream"},
    {38, "driver firmware error"},
    {43, "GPU stopped processing a channel, which was reset"},
    {44, "fault during a context switch"},
    {45, "channel removed, after an earlier error or at a process's end"},
    {46, "GPU stopped processing"},
    {48, "double-bit ECC error"},
    {61, "internal micro-controller breakpoint or warning"},
    {62, "internal micro-controller halt"},
    {63, "memory page retired or row remapped"},
    {64, "memory page could not be retired or row not be remapped"},
    {69, "graphics engine class error"},
    {74, "NVLink error"},
    {79, "GPU has fallen off the bus"},
    {92, "high rate of single-bit ECC errors"},
    {94, "contained uncorrectable memory error"},
    {95, "uncontained uncorrectable memory error"},
    {109, "context switch timeout"},
    {110, "security fault"},
    {119, "GSP RPC timeout"},
    {120, "GSP error"},
    {121, "C2C link error"},
    {136, "link training failed"},
    {137, "NVLink privilege error"},
    {140, "unrecovered ECC error"},
    {143, "GPU initialization error"},
    {144, "NVLink error (SAW)"},
    {145, "NVLink error (RLW)"},
    {146, "NVLink error (TLW)"},
    {147, "NVLink error (TREX)"},
    {148, "NVLink error (NVLPW_CTRL)"},
    {149, "NVLink error (NETIR)"},
    {150, "NVLink error (MSE)"},
    {154, "GPU recovery action changed"},
    {155, "NVLink went down"},
    {156, "resource retired"},
    {157, "resource could not be retired"},
    {158, "GPU fatal timeout"},
    {167, "PCIe fatal timeout"},
    {171, "uncorrectable DRAM error"},
    {172, "uncorrectable SRAM error"},
    {999, "one that NVML does not know"},
};

bool IsSame(const Xid& a, const Xid& b) {
  return a.device == b.device && a.number == b.number && a.gpu_instance == b.gpu_instance &&
         a.loss == b.loss;
}

}  // namespace

std::string_view XidText(uint64_t number) {
  const auto* const found = std::ranges::lower_bound(kKnown, number, {}, &Known::number);
  return found != std::end(kKnown) && found->number == number ? found->text : "";
}

std::string ToString(const Xid& xid) {
  if (xid.loss != Xid::Loss::kNone) {
    return absl::StrCat("NVML: GPU ", xid.loss == Xid::Loss::kLost ? "is lost" : "requires a reset",
                        " (cuda:", xid.device, ")");
  }
  std::string text = absl::StrCat("Xid ", xid.number, " on cuda:", xid.device);
  if (xid.gpu_instance.has_value()) {
    absl::StrAppend(&text, " (GPU instance ", *xid.gpu_instance, ")");
  }
  if (const std::string_view known = XidText(xid.number); !known.empty()) {
    absl::StrAppend(&text, ": ", std::string(known));
  }
  return text;
}

bool XidLog::Add(const Xid& xid) {
  Keep(xid);
  return IsWorthALine(xid);
}

void XidLog::Keep(const Xid& xid) {
  const auto is_of_device = [&](const Kept& k) { return k.xid.device == xid.device; };
  absl::Duration last = -absl::InfiniteDuration();
  for (const Kept& k : kept_) {
    if (is_of_device(k)) last = std::max(last, k.last);
  }
  const bool is_first = xid.at - last > kMinute;
  if (is_first) {
    num_dropped_.erase(xid.device);
    for (Kept& k : kept_) k.is_first = k.is_first && !is_of_device(k);
  }
  const auto same = std::ranges::find_if(kept_, [&](const Kept& k) { return IsSame(k.xid, xid); });
  if (same != kept_.end()) {
    if (same->is_first) {
      same->last = xid.at;
      return;
    }
    kept_.erase(same);
  }
  if (std::ranges::count_if(kept_, is_of_device) >= static_cast<ptrdiff_t>(kKept)) {
    auto oldest = std::ranges::find_if(kept_, is_of_device);
    if (oldest->is_first) {
      oldest = std::find_if(std::next(oldest), kept_.end(), is_of_device);
      ++num_dropped_[xid.device];
    }
    kept_.erase(oldest);
  }
  kept_.push_back({.xid = xid, .last = xid.at, .is_first = is_first});
}

bool XidLog::IsWorthALine(const Xid& xid) {
  std::erase_if(logged_, [&](const Xid& x) { return xid.at - x.at >= kMinute; });
  if (logged_.size() >= kLines) return false;
  if (std::ranges::any_of(logged_, [&](const Xid& x) { return IsSame(x, xid); })) return false;
  logged_.push_back(xid);
  return true;
}

bool XidLog::HasRecent(std::span<const int> devices, absl::Duration now) const {
  return std::ranges::any_of(kept_, [&](const Kept& k) {
    return now - k.last <= kRecent &&
           (devices.empty() || std::ranges::find(devices, k.xid.device) != devices.end());
  });
}

std::string XidLog::Reasons(absl::Duration now) const {
  std::string reasons;
  for (const Kept& k : kept_) {
    absl::StrAppend(&reasons, "; ", ToString(k.xid));
    if (const absl::Duration ago = now - k.last; ago > kRecent) {
      absl::StrAppend(&reasons, ", ", absl::FormatDuration(absl::Trunc(ago, absl::Seconds(1))),
                      " before");
    }
  }
  for (const auto& [device, num] : num_dropped_) {
    absl::StrAppend(&reasons, "; ", num, " more on cuda:", device);
  }
  return reasons;
}

}  // namespace continuo::kernels::cuda
