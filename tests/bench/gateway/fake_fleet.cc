// SPDX-License-Identifier: Apache-2.0
// A fleet of workers in one process that only report, for measuring a gateway's view of them. One
// port stands for all workers: a gateway that is given many loopback addresses with it takes each
// for a worker. Prints "listening PORT"; answers each line of standard input with "watches N
// reports N bytes N".
#include <grpcpp/alarm.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "continuo/v1/worker.grpc.pb.h"
#include "services/common/flags.h"
#include "services/common/grpc/grpc_server.h"
#include "services/protocol/load_delta.h"
#include "services/protocol/proto_time.h"

namespace continuo {
namespace {

constexpr char kModel[] = "fake";

struct Counts {
  std::atomic<int64_t> watches = 0, reports = 0, bytes = 0;
};

// Reports a worker whose load changes all the time, or never.
class Watch : public grpc::ServerWriteReactor<v1::WatchLoadResponse> {
 public:
  Watch(absl::Duration interval, bool sends_deltas, bool busy, Counts* counts)
      : interval_(interval), sends_deltas_(sends_deltas), busy_(busy), counts_(counts) {
    const int64_t number = ++counts_->watches;
    load_.set_worker(absl::StrCat("continuo-worker-7d9fd98b6c-", number));
    load_.set_incarnation("0123456789abcdef");
    load_.set_state(v1::WORKER_STATE_SERVING);
    load_.set_health(v1::WORKER_HEALTH_SERVING);
    load_.set_model(kModel);
    load_.set_fingerprint("0123456789abcdef0123456789abcdef");
    load_.set_tokenizer_fingerprint("0123456789abcdef0123456789abcdef");
    load_.set_total_kv_blocks(10000);
    load_.set_block_size_tokens(16);
    load_.set_max_running_requests(64);
    turn_ = static_cast<uint64_t>(number);
    Report();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    alarm_.Set(absl::ToChronoTime(absl::Now() + interval_), [this](bool) {
      if (cancelled_) return Finish(grpc::Status::CANCELLED);
      Report();
    });
  }
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override { delete this; }

 private:
  void Report() {
    if (busy_) {
      turn_ = turn_ * 6364136223846793005u + 1442695040888963407u;
      const auto draw = static_cast<uint32_t>(turn_ >> 40);
      load_.set_running_requests(30 + draw % 30);
      load_.set_waiting_requests(draw % 3);
      load_.set_pending_prompt_tokens(draw % 4000);
      load_.set_used_kv_blocks(5000 + draw % 4000);
      load_.set_steps(load_.steps() + 2);
    }
    ++counts_->reports;
    outgoing_ = is_first_ || !sends_deltas_ ? load_ : protocol::MakeLoadDelta(load_);
    is_first_ = false;
    counts_->bytes += static_cast<int64_t>(outgoing_.ByteSizeLong());
    StartWrite(&outgoing_);
  }

  const absl::Duration interval_;
  const bool sends_deltas_, busy_;
  Counts* const counts_;
  uint64_t turn_ = 0;
  bool is_first_ = true;
  v1::WatchLoadResponse load_, outgoing_;
  grpc::Alarm alarm_;
  std::atomic<bool> cancelled_ = false;
};

class FakeLoad
    : public v1::WorkerService::WithCallbackMethod_WatchLoad<v1::WorkerService::Service> {
 public:
  FakeLoad(bool busy, Counts* counts) : busy_(busy), counts_(counts) {}
  grpc::ServerWriteReactor<v1::WatchLoadResponse>* WatchLoad(
      grpc::CallbackServerContext*, const v1::WatchLoadRequest* request) override {
    // A busy worker has news whenever it may report, an idle one never.
    return new Watch(protocol::FromProto(busy_ ? request->min_interval() : request->max_interval()),
                     request->accepts_deltas(), busy_, counts_);
  }

 private:
  const bool busy_;
  Counts* const counts_;
};

class FakeInference
    : public v1::InferenceService::WithCallbackMethod_ListModels<v1::InferenceService::Service> {
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest*,
                                       v1::ListModelsResponse* response) override {
    response->add_models()->set_name(kModel);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

int Main(int argc, char** argv) {
  bool busy = false;
  common::Flags flags("fake_fleet", "workers that only report");
  flags.Switch("busy", &busy, "their load changes all the time");
  if (const std::optional<int> exit_code = flags.Parse(argc, argv)) return *exit_code;
  Counts counts;
  FakeInference inference;
  FakeLoad load(busy, &counts);
  absl::StatusOr<std::unique_ptr<common::GrpcServer>> server =
      common::GrpcServer::Start({.listen = "0.0.0.0:0"}, {&inference, &load});
  if (!server.ok()) {
    std::cerr << server.status() << "\n";
    return 1;
  }
  std::cout << "listening " << (*server)->port() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << "watches " << counts.watches << " reports " << counts.reports << " bytes "
              << counts.bytes << std::endl;
  }
  (*server)->Shutdown(absl::Now());
  return 0;
}

}  // namespace
}  // namespace continuo

int main(int argc, char** argv) { return continuo::Main(argc, argv); }
