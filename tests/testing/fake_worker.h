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

// The vector that fake workers give for an input.
std::vector<float> FakeVector(const v1::EmbedInput& input);

// A worker over gRPC on a loopback port, in the test's own process. It answers with FakeGeneration
// and reports the load that the test sets. Thread-safe.
class FakeWorker {
 public:
  // One call of Generate: its request, its metadata, and how it ended.
  struct Call {
    v1::GenerateRequest request;
    std::multimap<std::string, std::string> metadata;
    absl::Duration time_left;            // Until its deadline.
    std::function<bool()> is_cancelled;  // For scripts, while the call is open.
    bool cancelled = false;
  };
  // Runs before each response of a call is sent, with the response's number from 0, on the call's
  // own thread, and may block. A returned status ends the call.
  using Script = std::function<std::optional<absl::Status>(const Call& call, int response)>;

  explicit FakeWorker(FakeGeneration::Worker worker = {.name = "fake"}, int port = 0,
                      const std::string& host = "127.0.0.1");
  // Kills the worker.
  ~FakeWorker();

  std::string address() const;
  int port() const { return port_; }

  void SetScript(Script script);
  // The script runs before Tokenize is answered, on the call's own thread, and may block.
  void SetTokenizeScript(std::function<void()> script);
  // The script runs before Embed is answered, on the call's own thread, and may block. A returned
  // status ends the call.
  using EmbedScript = std::function<std::optional<absl::Status>(const v1::EmbedRequest& request)>;
  void SetEmbedScript(EmbedScript script);
  // The script answers LoadAdapter, and UnloadAdapter with an empty path; without it both are
  // UNIMPLEMENTED.
  using AdapterScript =
      std::function<grpc::Status(const std::string& name, const std::string& path)>;
  void SetAdapterScript(AdapterScript script);
  // The requests of Embed so far, and the number of those that came as migrations.
  std::vector<v1::EmbedRequest> embeds() const;
  int num_embed_migrations() const;
  // Changes the report that WatchLoad sends, at once and then every 100 ms.
  void SetReport(const std::function<void(v1::WatchLoadResponse&)>& change);
  void SetState(v1::WorkerState state);
  // Sets the health that grpc.health.v1 reports; the load is reported as before. Each start sets it
  // to serving.
  void SetHealth(bool serving);
  // While silent, WatchLoad stays open without reports.
  void SetSilent(bool silent);
  // Ends the WatchLoads that are open; the process and its other calls go on.
  void EndWatches();
  // The number of WatchLoads opened so far.
  int num_watches() const;
  // Sends a response to every open WatchSteps.
  void SendSteps(const v1::WatchStepsResponse& response);
  // New WatchSteps end with this status; OK: they are taken.
  void RefuseStepWatches(grpc::Status status);
  // Waits until this number of WatchSteps is open. Returns false after a minute.
  bool WaitForStepWatches(int number) const;
  // Breaks all streams and closes the port, as when the process dies.
  void Kill();
  // Starts a new process at the same port.
  void Restart();

  std::vector<Call> calls() const;
  size_t num_calls() const;
  // Waits until `done` is true of the calls. Returns false after a minute.
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
  EmbedScript embed_script_ ABSL_GUARDED_BY(mutex_);
  AdapterScript adapter_script_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::EmbedRequest> embeds_ ABSL_GUARDED_BY(mutex_);
  int num_embed_migrations_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::WatchLoadResponse report_ ABSL_GUARDED_BY(mutex_);
  uint64_t report_version_ ABSL_GUARDED_BY(mutex_) = 0;
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  int num_watches_ ABSL_GUARDED_BY(mutex_) = 0;
  int end_watches_ ABSL_GUARDED_BY(mutex_) = 0;  // Watches up to this number end.
  bool killed_ ABSL_GUARDED_BY(mutex_) = false;
  int num_step_watches_ ABSL_GUARDED_BY(mutex_) = 0;  // Open ones.
  grpc::Status step_watches_refused_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::WatchStepsResponse> steps_ ABSL_GUARDED_BY(mutex_);  // Everything sent.
  int incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Call> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo
