// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_options.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace continuo::kernels {
namespace {

struct Experiment {
  const char* name;
  bool DeviceOptions::*field;
  bool value;
};

constexpr Experiment kExperiments[] = {
    {"no_pdl", &DeviceOptions::pdl, false},
    {"no_wgmma_prefill", &DeviceOptions::wgmma_prefill, false},
};

}  // namespace

std::vector<std::string> ExperimentNames() {
  std::vector<std::string> names;
  for (const Experiment& experiment : kExperiments) names.emplace_back(experiment.name);
  return names;
}

absl::Status ApplyExperiments(std::string_view list, DeviceOptions& options) {
  if (list.empty()) return absl::OkStatus();
  const std::vector<std::string> names = absl::StrSplit(std::string(list), ',');
  for (const std::string& name : names) {
    bool is_known = false;
    for (const Experiment& experiment : kExperiments) {
      if (name != experiment.name) continue;
      options.*experiment.field = experiment.value;
      is_known = true;
    }
    if (!is_known) {
      return absl::InvalidArgumentError(absl::StrCat("\"", name,
                                                     "\" is not an experiment; known are ",
                                                     absl::StrJoin(ExperimentNames(), ", ")));
    }
  }
  return absl::OkStatus();
}

}  // namespace continuo::kernels
