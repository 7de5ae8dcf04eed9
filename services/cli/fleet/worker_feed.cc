// SPDX-License-Identifier: Apache-2.0
#include "services/cli/fleet/worker_feed.h"

#include <utility>

#include "services/base/status_macros.h"
#include "services/common/grpc/grpc_status.h"
#include "services/protocol/proto_time.h"

namespace continuo::cli {

bool IsLasting(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kInvalidArgument:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<std::unique_ptr<WorkerFeed>> WorkerFeed::Start(const WorkerFeedOptions& options,
                                                              WorkerFeedSinks sinks) {
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, OpenChannel(options.connection));
  std::unique_ptr<WorkerFeed> feed(new WorkerFeed(options, std::move(sinks)));
  WorkerFeed* const f = feed.get();
  f->stub_ = v1::WorkerService::NewStub(channel);
  f->threads_.emplace_back([f] {
    v1::WatchStepsRequest request;
    *request.mutable_min_interval() = protocol::ToProto(f->options_.steps_interval);
    f->Follow([&](grpc::ClientContext* context) { return f->stub_->WatchSteps(context, request); },
              f->sinks_.steps, f->sinks_.steps_lost);
  });
  if (f->sinks_.load) {
    f->threads_.emplace_back([f] {
      f->Follow([f](grpc::ClientContext* context) { return f->stub_->WatchLoad(context, {}); },
                f->sinks_.load, f->sinks_.load_lost);
    });
  }
  return feed;
}

template <typename Response, typename Open>
void WorkerFeed::Follow(Open open, const std::function<void(const Response&)>& take,
                        const std::function<void(const absl::Status&)>& lost) {
  while (true) {
    grpc::ClientContext context;
    AddMetadata(options_.connection, context);
    {
      absl::MutexLock lock(&mutex_);
      if (cancelled_) return;
      calls_.insert(&context);
    }
    const std::unique_ptr<grpc::ClientReader<Response>> reader = open(&context);
    Response response;
    while (reader->Read(&response)) {
      absl::MutexLock lock(&sinks_mutex_);
      take(response);
    }
    const absl::Status status = common::FromGrpcStatus(reader->Finish());
    {
      absl::MutexLock lock(&mutex_);
      calls_.erase(&context);
      if (cancelled_) return;
    }
    {
      absl::MutexLock lock(&sinks_mutex_);
      lost(status.ok() ? absl::UnavailableError("the worker ended the stream") : status);
    }
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&cancelled_), options_.retry_delay);
  }
}

WorkerFeed::~WorkerFeed() {
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    for (grpc::ClientContext* call : calls_) call->TryCancel();
  }
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace continuo::cli
