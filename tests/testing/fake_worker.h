// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "continuo/v1/worker.grpc.pb.h"
#include "services/common/grpc/grpc_server.h"
#include "tests/testing/fake_generation.h"

namespace continuo {

// A worker over gRPC on a loopback port, in the test's own process: it answers with FakeGeneration
// and reports what the test says. Thread-safe.
class FakeWorker {
 public:
  // What a call of Generate came with, and how it ended.
  struct Call {
    v1::GenerateRequest request;
    std::multimap<std::string, std::string> metadata;
    absl::Duration time_left;            // until its deadline
    std::function<bool()> is_cancelled;  // for scripts, while the call is open
    bool cancelled = false;
  };
  // What to do before the response of this number (of one call, from 0) is sent; runs on the call's
  // own thread and may block. A status ends the call with it.
  using Script = std::function<std::optional<absl::Status>(const Call& call, int response)>;

  explicit FakeWorker(FakeGeneration::Worker worker = {.name = "fake"}, int port = 0,
                      const std::string& host = "127.0.0.1");
  // As Kill.
  ~FakeWorker();

  std::string address() const;
  int port() const { return port_; }

  void SetScript(Script script);
  // Called before Tokenize is answered, on the call's own thread; may block.
  void SetTokenizeScript(std::function<void()> script);
  // What WatchLoad reports, at once and then again and again.
  void SetReport(const std::function<void(v1::WatchLoadResponse&)>& change);
  void SetState(v1::WorkerState state);
  // What grpc.health.v1 says; the load is reported as before. True after each start.
  void SetHealth(bool serving);
  // WatchLoad goes on, without reports.
  void SetSilent(bool silent);
  // The WatchLoads that are open end; the process and its other calls go on.
  void EndWatches();
  // WatchLoads that were opened so far.
  int num_watches() const;
  // All streams break and the port is closed, as when the process dies.
  void Kill();
  // A new process at the same port.
  void Restart();

  std::vector<Call> calls() const;
  size_t num_calls() const;
  // Waits until `done` is true of the calls; false after a minute.
  bool WaitForCalls(const std::function<bool(const std::vector<Call>&)>& done) const;

 private:
  class Inference;
  class Load;

  void Start();

  const FakeGeneration::Worker worker_;
  const std::string host_;
  int port_;
  std::unique_ptr<Inference> inference_;
  std::unique_ptr<Load> load_;
  std::unique_ptr<common::GrpcServer> server_;

  mutable absl::Mutex mutex_;
  Script script_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> tokenize_script_ ABSL_GUARDED_BY(mutex_);
  v1::WatchLoadResponse report_ ABSL_GUARDED_BY(mutex_);
  uint64_t report_version_ ABSL_GUARDED_BY(mutex_) = 0;
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  int num_watches_ ABSL_GUARDED_BY(mutex_) = 0;
  int end_watches_ ABSL_GUARDED_BY(mutex_) = 0;  // those up to this one end
  bool killed_ ABSL_GUARDED_BY(mutex_) = false;
  int incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Call> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo
