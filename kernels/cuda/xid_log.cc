// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/xid_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace continuo::cuda {
namespace {

struct Known {
  uint64_t number;
  std::string_view text;
};

// After NVIDIA's catalogue, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html;
// what graphics, video and other GPUs than those of data centres have is left out. Ascending.
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
};

bool IsSame(const Xid& a, const Xid& b) {
  return a.device == b.device && a.number == b.number && a.gpu_instance == b.gpu_instance;
}

}  // namespace

std::string_view XidText(uint64_t number) {
  const auto* const found = std::ranges::lower_bound(kKnown, number, {}, &Known::number);
  return found != std::end(kKnown) && found->number == number ? found->text : "";
}

std::string ToString(const Xid& xid) {
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
  bool repeated = false;
  size_t of_device = 0;
  const auto same = std::ranges::find_if(xids_, [&](const Xid& x) { return IsSame(x, xid); });
  if (same != xids_.end()) {
    repeated = xid.at - same->at <= kRecent;
    xids_.erase(same);
  }
  for (const Xid& x : xids_) of_device += x.device == xid.device ? 1 : 0;
  if (of_device >= kKept) {
    xids_.erase(std::ranges::find_if(xids_, [&](const Xid& x) { return x.device == xid.device; }));
  }
  xids_.push_back(xid);
  if (repeated) return false;
  if (xid.at - lines_since_ > kRecent) {
    lines_since_ = xid.at;
    num_lines_ = 0;
  }
  return ++num_lines_ <= kLines;
}

bool XidLog::HasRecent(absl::Duration now) const {
  return !xids_.empty() && now - xids_.back().at <= kRecent;
}

std::string XidLog::Reasons(absl::Duration now) const {
  std::string reasons;
  for (const Xid& xid : xids_) {
    absl::StrAppend(&reasons, "; ", ToString(xid));
    if (const absl::Duration ago = now - xid.at; ago > kRecent) {
      absl::StrAppend(&reasons, ", ", absl::FormatDuration(absl::Trunc(ago, absl::Seconds(1))),
                      " before");
    }
  }
  return reasons;
}

}  // namespace continuo::cuda
