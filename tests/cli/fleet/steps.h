// SPDX-License-Identifier: Apache-2.0
#pragma once

// Short notations for the steps of a worker, and a fake worker that sends them.

#include <grpcpp/server_context.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "continuo/v1/worker.grpc.pb.h"
#include "services/common/grpc/grpc_status.h"

namespace continuo::testing {

struct StepRow {
  std::string id;
  uint32_t prompt = 0, cached = 0, rows = 0, generated = 0;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  bool preempted = false;
  uint32_t index = 0;
};

// Makes step `number`. Steps take 8 ms, and one begins every 10 ms.
inline v1::Step MakeStep(uint64_t number, const std::vector<StepRow>& rows) {
  v1::Step step;
  step.set_number(number);
  step.mutable_start_time()->set_seconds(1000 + static_cast<int64_t>(number / 100));
  step.mutable_start_time()->set_nanos(static_cast<int32_t>(number % 100) * 10'000'000);
  step.mutable_duration()->set_nanos(8'000'000);
  for (const StepRow& row : rows) {
    v1::StepSequence& s = *step.add_sequences();
    s.set_request_id(row.id);
    s.set_index(row.index);
    s.set_prompt_tokens(row.prompt);
    s.set_cached_tokens(row.cached);
    s.set_new_tokens(row.rows);
    s.set_generated_tokens(row.generated);
    s.set_finish_reason(row.finish);
    s.set_preempted(row.preempted);
  }
  return step;
}

inline v1::WatchStepsResponse MakeSteps(const std::vector<v1::Step>& steps,
                                        uint64_t num_dropped = 0) {
  v1::WatchStepsResponse response;
  for (const v1::Step& step : steps) *response.add_steps() = step;
  response.set_num_dropped(num_dropped);
  return response;
}

// A fake worker. Every call of WatchSteps takes its next life: it sends the steps of that life,
// then ends with `end`, or stays open where that is OK. WatchLoad sends one report and stays open.
class FakeStepsWorker : public v1::WorkerService::Service {
 public:
  struct Life {
    std::vector<v1::WatchStepsResponse> steps;
    absl::Status end;
  };
  FakeStepsWorker(v1::WatchLoadResponse load, std::vector<Life> lives)
      : load_(std::move(load)), lives_(std::move(lives)) {}

  grpc::Status WatchLoad(grpc::ServerContext* context, const v1::WatchLoadRequest*,
                         grpc::ServerWriter<v1::WatchLoadResponse>* writer) override {
    writer->Write(load_);
    return StayOpen(context);
  }
  grpc::Status WatchSteps(grpc::ServerContext* context, const v1::WatchStepsRequest*,
                          grpc::ServerWriter<v1::WatchStepsResponse>* writer) override {
    Life life;
    {
      absl::MutexLock lock(&mutex_);
      if (next_ < lives_.size()) life = lives_[next_++];
    }
    for (const v1::WatchStepsResponse& response : life.steps) writer->Write(response);
    return life.end.ok() ? StayOpen(context) : common::ToGrpcStatus(life.end);
  }

 private:
  grpc::Status StayOpen(grpc::ServerContext* context) {
    bool never = false;
    absl::MutexLock lock(&mutex_);
    while (!context->IsCancelled()) {
      mutex_.AwaitWithTimeout(absl::Condition(&never), absl::Milliseconds(5));
    }
    return grpc::Status::CANCELLED;
  }

  absl::Mutex mutex_;
  const v1::WatchLoadResponse load_;
  const std::vector<Life> lives_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace continuo::testing
