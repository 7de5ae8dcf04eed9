// SPDX-License-Identifier: Apache-2.0
#include "services/worker/print_profile.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "services/base/clock.h"
#include "services/base/status_macros.h"
#include "services/common/container.h"
#include "services/common/log.h"
#include "services/worker/fetch_models.h"
#include "services/worker/model/load/model_loader.h"
#include "services/worker/plan_load.h"
#include "services/worker/profile/measure_profile.h"
#include "services/worker/serving.h"

namespace continuo::worker {
namespace {

[[noreturn]] void Fail(const absl::Status& failure) {
  common::LogAndExit(1, "the worker ends", {{"reason", failure.ToString()}});
}

absl::StatusOr<std::string> MeasuredProfile(const WorkerConfig& flags) {
  const SystemClock clock;
  ASSIGN_OR_RETURN(const WorkerConfig config, FetchModels(flags, &clock));
  ASSIGN_OR_RETURN(model::LoadOptions options, PlanLoad(config, common::AvailableMemoryBytes()));
  options.on_stuck = Fail;
  ASSIGN_OR_RETURN(const model::LoadedModel model, model::LoadModel(options));
  profile::MeasureOptions measure;
  measure.name = absl::StrCat(config.model_name, ", ", model.weight_format, " on ",
                              model.backend_name, ", ", model.num_threads, " threads");
  measure.engine = MakeEngineOptions(config, model, &clock);
  measure.max_context_tokens = model.config.context_length;
  common::Log(common::LogSeverity::kInfo, "measuring",
              {{"model", config.model_name}, {"kv_blocks", model.num_blocks}});
  ASSIGN_OR_RETURN(const profile::WorkerProfile profile,
                   profile::MeasureProfile(measure, *model.executor, clock));
  return profile::FormatProfile(profile);
}

}  // namespace

int PrintProfile(const WorkerConfig& config, std::ostream& out) {
  const absl::StatusOr<std::string> profile = MeasuredProfile(config);
  if (!profile.ok()) Fail(profile.status());
  out << *profile << std::flush;
  return out.good() ? 0 : 1;
}

}  // namespace continuo::worker
