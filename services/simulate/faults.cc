// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/faults.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/base/random.h"

namespace continuo::simulate {
namespace {

constexpr int kNumKinds = static_cast<int>(Fault::Kind::kClientGone) + 1;
constexpr std::string_view kNames[kNumKinds] = {
    "crash", "hang",         "freeze",        "slow",          "drain",      "lost reports",
    "cut",   "worker clock", "gateway clock", "gateway crash", "client gone"};

}  // namespace

absl::Duration EndOf(const Fault& fault) {
  const bool jumps =
      fault.kind == Fault::Kind::kWorkerClock || fault.kind == Fault::Kind::kGatewayClock;
  return jumps ? fault.at : fault.at + fault.lasts;
}

std::string_view FaultName(Fault::Kind kind) { return kNames[static_cast<int>(kind)]; }

std::string DescribeFault(const Fault& fault) {
  return absl::StrCat(absl::FormatDuration(absl::Trunc(fault.at, absl::Milliseconds(1))), " ",
                      std::string(FaultName(fault.kind)), ", worker ", fault.worker, ", gateway ",
                      fault.gateway, ", ",
                      absl::FormatDuration(absl::Trunc(fault.lasts, absl::Milliseconds(1))),
                      ", times ", fault.factor);
}

std::vector<Fault> RandomFaults(uint64_t seed, int count, int workers, int gateways,
                                absl::Duration time) {
  SplitMix64 random(seed);
  std::vector<Fault> faults;
  for (int i = 0; i < count; ++i) {
    Fault& fault = faults.emplace_back();
    fault.kind = static_cast<Fault::Kind>(random.Next() % kNumKinds);
    fault.at = time * random.NextUniform();
    fault.worker = static_cast<int>(random.Next() % static_cast<uint64_t>(workers));
    fault.gateway = static_cast<int>(random.Next() % static_cast<uint64_t>(gateways));
    // Many are shorter than any timeout, some longer than most.
    const double share = random.NextUniform();
    fault.lasts = absl::Seconds(10) * (share * share * share);
    fault.factor = 2 + 20 * random.NextUniform();
    if (fault.kind == Fault::Kind::kWorkerClock || fault.kind == Fault::Kind::kGatewayClock) {
      fault.lasts = absl::Hours(2) * (2 * random.NextUniform() - 1);
    }
  }
  std::ranges::stable_sort(faults, {}, &Fault::at);
  return faults;
}

}  // namespace continuo::simulate
