// SPDX-License-Identifier: Apache-2.0
#include "services/cli/fleet/cost_recorder.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "services/base/status_macros.h"
#include "services/protocol/proto_time.h"
#include "services/worker/profile/worker_profile.h"

namespace continuo::cli {
namespace {

// The pause before a step belongs to the one before it if it is this short: the host delivers,
// schedules and takes in then. A longer one means that there was nothing to do.
constexpr absl::Duration kHostTime = absl::Milliseconds(2);

engine::StepLoad WorkOf(const v1::Step& step) {
  engine::StepLoad work;
  for (const v1::StepSequence& s : step.sequences()) {
    if (s.new_tokens() == 0) continue;
    const bool samples = s.cached_tokens() + s.new_tokens() >= s.prompt_tokens();
    work = work.WithSequence(s.cached_tokens(), s.new_tokens(), samples ? 1 : 0);
  }
  return work;
}

}  // namespace

void CostRecorder::Take(const v1::WatchStepsResponse& response) {
  for (const v1::Step& step : response.steps()) {
    const absl::Time start = protocol::FromProto(step.start_time());
    if (pending_.has_value()) {
      const absl::Duration pause = start - (pending_->start + pending_->took);
      const bool follows = step.number() == pending_->number + 1 && pause > absl::ZeroDuration() &&
                           pause <= kHostTime;
      fit_.Add(pending_->work, pending_->took + (follows ? pause : absl::ZeroDuration()));
    }
    pending_ = {.number = step.number(),
                .start = start,
                .took = protocol::FromProto(step.duration()),
                .work = WorkOf(step)};
  }
}

absl::StatusOr<std::string> CostRecorder::Profile() const {
  if (!load_.has_value() || load_->total_kv_blocks() == 0 || load_->block_size_tokens() == 0 ||
      load_->max_running_requests() == 0) {
    return absl::FailedPreconditionError("the worker has not told the size of its KV cache");
  }
  profile::WorkerProfile profile;
  ASSIGN_OR_RETURN(profile.step, fit_.Fit());
  profile.name = load_->worker() + ", " + load_->model();
  const auto count = [](uint32_t told) {
    return static_cast<int>(std::min<uint32_t>(told, std::numeric_limits<int>::max()));
  };
  profile.engine.num_blocks = count(load_->total_kv_blocks());
  profile.engine.block_size = count(load_->block_size_tokens());
  profile.engine.max_running = count(load_->max_running_requests());
  return profile::FormatProfile(profile);
}

double CostRecorder::Error() const {
  const auto step = fit_.Fit();
  return step.ok() ? fit_.Error(*step) : 0;
}

}  // namespace continuo::cli
