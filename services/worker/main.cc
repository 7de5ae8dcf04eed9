// SPDX-License-Identifier: Apache-2.0
// continuo-worker: flags, then the port, then the model, then requests until SIGTERM.

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "kernels/device_faults.h"
#include "kernels/replica.h"
#include "services/base/clock.h"
#include "services/base/status_macros.h"
#include "services/common/container.h"
#include "services/common/log.h"
#include "services/common/process.h"
#include "services/common/shutdown.h"
#include "services/common/span_exporter.h"
#include "services/common/version.h"
#include "services/worker/config.h"
#include "services/worker/draft_model.h"
#include "services/worker/model/loader.h"
#include "services/worker/server/worker_server.h"
#include "services/worker/text/text_model.h"

namespace continuo {
namespace {

// Beyond the drain's own time, until the server is shut down; and for that.
constexpr absl::Duration kPatience = absl::Seconds(10);

[[noreturn]] void Fail(const absl::Status& status) {
  LogAndExit(1, "the worker ends", {{"reason", status.ToString()}});
}

// `failure` with what the driver tells of the devices. Waits for that a little, so nothing that
// streams wait for calls it: theirs end before the process does.
absl::Status Explain(DeviceFaults* faults, const absl::Status& failure) {
  return faults == nullptr ? failure : faults->Explain(failure);
}

void LogDeviceNote(const DeviceNote& note) {
  switch (note.kind) {
    case DeviceNote::Kind::kFault:
      Log(LogSeverity::kWarning, "a device's driver tells of a fault", {{"fault", note.text}});
      break;
    case DeviceNote::Kind::kUnheard:
      Log(LogSeverity::kInfo, "faults of devices are not heard of", {{"reason", note.text}});
      break;
    case DeviceNote::Kind::kPartUnheard:
      Log(LogSeverity::kInfo, "faults of some devices are not heard of", {{"reason", note.text}});
      break;
  }
}

// A model and its text, loaded.
struct Loaded {
  std::unique_ptr<TextModel> text;
  LoadedModel model;
  std::shared_ptr<Drafter> draft_model;  // null unless --speculation=draft
};

// `faults` is set as soon as the devices are found, and stays null on the CPU.
absl::StatusOr<Loaded> Load(const WorkerConfig& config, const Clock* clock,
                            std::shared_ptr<DeviceFaults>* faults) {
  Loaded loaded;
  ASSIGN_OR_RETURN(LoadOptions options, PlanLoad(config, AvailableMemoryBytes()));
  ASSIGN_OR_RETURN(
      *faults,
      WatchDeviceFaults({.device = config.device, .clock = clock, .on_note = LogDeviceNote}));
  options.on_stuck = [faults = *faults](const absl::Status& failure) {
    Fail(Explain(faults.get(), failure));
  };
  ASSIGN_OR_RETURN(loaded.text, TextModel::Open(config.model));
  std::optional<DraftModel> draft;
  if (config.speculation == "draft") {
    ASSIGN_OR_RETURN(draft, DraftModel::Load(config, options, *loaded.text));
    options.other_block_bytes = draft->bytes_per_block();
  }
  ASSIGN_OR_RETURN(loaded.model, LoadExecutor(options));
  if (draft.has_value()) {
    ASSIGN_OR_RETURN(loaded.draft_model, std::move(*draft).MakeDrafter(loaded.model, clock));
  }
  return loaded;
}

int Main(int argc, char** argv) {
  ParsedConfig parsed = ParseWorkerConfig(argc, argv);
  if (parsed.exit_code.has_value()) return *parsed.exit_code;
  const WorkerConfig& config = parsed.config;
  PrepareProcess();
  PrepareDevices(config.device);
  ShutdownSignal shutdown;

  const SystemClock clock;
  // Declared before the server, so that they outlive it.
  std::shared_ptr<DeviceFaults> faults;
  absl::StatusOr<Loaded> loaded = absl::UnavailableError("not loaded yet");
  std::unique_ptr<SpanExporter> spans;
  if (!config.spans.endpoint.empty()) {
    auto opened = SpanExporter::Open(
        {.target = config.spans, .service = "continuo-worker", .instance = config.worker_name});
    if (!opened.ok()) Fail(opened.status());
    spans = *std::move(opened);
  }
  WorkerServerOptions options;
  options.spans = spans.get();
  options.listen = config.listen;
  options.metrics_listen = config.metrics_listen;
  options.tls = config.tls;
  options.worker_name = config.worker_name;
  options.model_name = config.model_name;
  options.drain_grace = config.drain_grace;
  options.max_receive_bytes = static_cast<int>(config.max_receive_bytes);
  options.max_buffer_bytes = config.max_buffer_bytes;
  options.max_concurrent_streams = config.max_streams_per_connection;
  // A CPU is slow and goes on. A device's step may never end: the process does, and gateways
  // continue its streams elsewhere.
  if (config.device != "cpu") {
    options.on_hang = [&config, &faults] {
      Fail(Explain(faults.get(),
                   absl::DeadlineExceededError(absl::StrCat("a step hangs on ", config.device))));
    };
  }
  auto started = WorkerServer::Start(options, &clock);
  if (!started.ok()) Fail(started.status());
  WorkerServer& server = **started;
  Log(LogSeverity::kInfo, "loading",
      {{"address", server.address()}, {"model", config.model_name}, {"version", Version()}});

  absl::Notification done;
  std::thread loader([&] {
    loaded = Load(config, &clock, &faults);
    done.Notify();
  });
  while (!done.HasBeenNotified()) {
    if (!shutdown.WaitFor(absl::Milliseconds(10)).has_value()) continue;
    Log(LogSeverity::kInfo, "ended while loading");
    std::_Exit(0);
  }
  loader.join();
  if (!loaded.ok()) Fail(Explain(faults.get(), loaded.status()));
  LoadedModel& model = loaded->model;
  if (model.num_threads > config.threads) {
    Log(LogSeverity::kWarning, "each rank computes on a thread of its own, more than --threads",
        {{"threads", config.threads},
         {"computing", model.num_threads},
         {"ranks", model.ranks.size()}});
  }
  if (config.device != "cpu" && config.weights == "auto" && model.weight_format == "fp32") {
    Log(LogSeverity::kWarning, "weights are fp32: --weights=bf16 or fp16 takes half the memory");
  }
  if (!model.cache_status.ok()) {
    Log(LogSeverity::kWarning, "the weights were packed anew",
        {{"reason", model.cache_status.ToString()}});
  }
  const ServedModel served = DescribeModel(config, model, loaded->text.get());
  Log(LogSeverity::kInfo, "loaded",
      {{"architecture", served.architecture},
       {"parameters", model.num_parameters},
       {"weights", model.weight_format},
       {"weights_from_cache", model.weights_from_cache},
       {"kv", model.kv_format},
       {"backend", model.backend_name},
       {"threads", model.num_threads},
       {"ranks", model.ranks.size()},
       {"placement", model.placement},
       {"kv_blocks", model.num_blocks},
       {"block_size", model.block_size},
       {"graph_bytes", model.ranks[0].graph_bytes},
       {"context", served.max_context_tokens},
       {"fingerprint", served.fingerprint}});
  EngineOptions engine_options = MakeEngineOptions(config, model);
  if (loaded->draft_model != nullptr) engine_options.drafter = loaded->draft_model;
  server.Serve(served, engine_options, model.executor.get(),
               [&faults](const absl::Status& failure) { Fail(Explain(faults.get(), failure)); });
  Log(LogSeverity::kInfo, "listening",
      {{"address", server.address()},
       {"metrics_address", server.metrics_address()},
       {"worker", config.worker_name}});

  shutdown.Wait();
  Log(LogSeverity::kInfo, "draining", {{"grace", config.drain_grace}});
  server.BeginDrain(config.drain_grace);
  const absl::Duration last = clock.Elapsed() + config.drain_grace + Lifecycle::kSpread + kPatience;
  while (!server.drained() && clock.Elapsed() < last) {
    if (shutdown.WaitFor(absl::Milliseconds(10)).has_value()) break;  // a second signal
  }
  // An engine that hangs never ends what it has, nor itself.
  absl::Notification ended;
  std::thread watchdog([&] {
    if (ended.WaitForNotificationWithTimeout(kPatience)) return;
    Fail(Explain(faults.get(), absl::DeadlineExceededError("the engine hangs")));
  });
  server.Shutdown();
  ended.Notify();
  watchdog.join();
  Log(LogSeverity::kInfo, "ended");
  return 0;
}

}  // namespace
}  // namespace continuo

int main(int argc, char** argv) { return continuo::Main(argc, argv); }
