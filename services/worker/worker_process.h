// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device_faults.h"
#include "services/base/clock.h"
#include "services/base/confined_folder.h"
#include "services/common/shutdown.h"
#include "services/common/telemetry/span_exporter.h"
#include "services/worker/config.h"
#include "services/worker/engine/draft/drafter.h"
#include "services/worker/model/load/model_loader.h"
#include "services/worker/server/grpc/worker_server.h"
#include "services/worker/serving.h"
#include "services/worker/text/text_model.h"

namespace continuo::worker {

// The parts of a worker, in the order in which they start: port, model, engine. Made in main before
// any other thread; used by that thread alone. Whatever fails for good is logged and ends the
// process with exit code 1, without unwinding, from whichever thread notices it.
class WorkerProcess {
 public:
  explicit WorkerProcess(WorkerConfig config) : config_(std::move(config)) {}

  // Serves until SIGTERM or SIGINT and a drain. A signal during the load ends the process at once.
  void Run();

 private:
  // The model, its text, and the draft model of speculation=draft.
  struct Loaded {
    WorkerConfig config;                              // with what the files say
    std::shared_ptr<text::TokenizerBundler> bundler;  // of the files that `text` is read from
    std::unique_ptr<text::TextModel> text;
    model::LoadedModel model;
    Heads heads;
    std::shared_ptr<engine::Drafter> draft_model;  // null without one
    std::optional<ConfinedFolder> lora_root;       // where adapters are read later
  };

  // The port answers from here on, as NOT_SERVING.
  void StartServer();
  // Waits for Load() on a thread of its own, so that a signal is heard meanwhile.
  void LoadOrExit();
  absl::StatusOr<Loaded> Load();
  void LogLoaded(const server::ServedModel& served) const;
  void Serve();
  void Drain();
  [[noreturn]] void Fail(const absl::Status& failure) const;

  const WorkerConfig config_;
  const SystemClock clock_;
  common::ShutdownSignal shutdown_;
  // Members below outlive the server, which uses them.
  std::shared_ptr<kernels::DeviceFaults> faults_;  // null on the CPU, and until devices are found
  absl::StatusOr<Loaded> loaded_ = absl::UnavailableError("not loaded yet");
  std::unique_ptr<common::SpanExporter> spans_;
  std::unique_ptr<server::WorkerServer> server_;
};

}  // namespace continuo::worker
