// SPDX-License-Identifier: Apache-2.0
#include "services/worker/fetch_models.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/log.h"
#include "services/worker/hub/fetch_model.h"
#include "services/worker/model_task.h"

namespace continuo::worker {
namespace {

hub::HubSettings Settings() {
  return hub::ReadHubSettings([](const char* name) { return std::getenv(name); });
}

void LogProgress(const hub::FetchProgress& progress) {
  const std::string file(progress.file);
  switch (progress.kind) {
    case hub::FetchProgress::Kind::kFile:
      common::Log(common::LogSeverity::kInfo, "fetching the model",
                  {{"file", file}, {"bytes", progress.done}, {"of", progress.total}});
      break;
    case hub::FetchProgress::Kind::kWaiting:
      common::Log(common::LogSeverity::kInfo, "another process fetches a file of the model",
                  {{"file", file}});
      break;
    case hub::FetchProgress::Kind::kOffline:
      common::Log(common::LogSeverity::kWarning,
                  "the hub was not asked for the model; what was fetched before is served",
                  {{"reason", file}});
      break;
  }
}

// Calls replace(reference) for each path that is one.
template <typename Replace>
absl::StatusOr<WorkerConfig> Replaced(WorkerConfig config, const Replace& replace) {
  for (std::string* const path : {&config.load.source.dir, &config.draft_model}) {
    if (!hub::IsHubReference(*path)) continue;
    ASSIGN_OR_RETURN(const hub::HubReference reference, hub::ParseHubReference(*path));
    ASSIGN_OR_RETURN(*path, replace(reference));
  }
  RETURN_IF_ERROR(ApplyTask(config));
  return config;
}

}  // namespace

absl::StatusOr<WorkerConfig> FetchModels(WorkerConfig config, const Clock* clock) {
  const hub::FetchOptions options = {
      .settings = Settings(), .clock = clock, .on_progress = LogProgress};
  return Replaced(std::move(config), [&options](const hub::HubReference& reference) {
    return hub::FetchModel(reference, options);
  });
}

absl::StatusOr<WorkerConfig> FindFetchedModels(WorkerConfig config) {
  const hub::HubSettings settings = Settings();
  return Replaced(std::move(config),
                  [&settings](const hub::HubReference& reference) -> absl::StatusOr<std::string> {
                    absl::StatusOr<std::string> path = hub::FindInCache(reference, settings);
                    if (path.ok()) return path;
                    return absl::Status(path.status().code(),
                                        absl::StrCat(path.status().message(),
                                                     "; a worker that starts with it fetches it"));
                  });
}

}  // namespace continuo::worker
