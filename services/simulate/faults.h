// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace continuo::simulate {

// One thing that goes wrong, at its time.
struct Fault {
  enum class Kind {
    kCrash,         // a worker's process ends, and another one starts after `lasts`
    kHang,          // a worker's device stands still for `lasts`
    kFreeze,        // a worker's whole process does
    kSlow,          // a worker's steps take `factor` times as long for `lasts`
    kDrain,         // a worker drains, its process ends, and another one starts after `lasts`
    kLostReports,   // no load report of a worker arrives anywhere for `lasts`
    kCut,           // nothing passes between a worker and a gateway for `lasts`
    kWorkerClock,   // the wall clock of a worker jumps by `lasts`
    kGatewayClock,  // the wall clock of a gateway does
    kGatewayCrash,  // a gateway's process ends, and another one starts after `lasts`
    kClientGone,    // the client of the oldest open request leaves
  };
  Kind kind = Kind::kCrash;
  absl::Duration at;  // since the first request
  int worker = 0, gateway = 0;
  absl::Duration lasts;
  double factor = 1;
};

// When it is over, since the first request. A clock jumps at once.
absl::Duration EndOf(const Fault& fault);

// The name in reports: "crash", "hang", …
std::string_view FaultName(Fault::Kind kind);

// Describes the fault in one line.
std::string DescribeFault(const Fault& fault);

// Makes `count` faults within `time`, at random. They are a function of the arguments.
std::vector<Fault> RandomFaults(uint64_t seed, int count, int workers, int gateways,
                                absl::Duration time);

}  // namespace continuo::simulate
