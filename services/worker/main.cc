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
#include "services/common/telemetry/span_exporter.h"
#include "services/common/version.h"
#include "services/worker/config.h"
#include "services/worker/draft_model.h"
#include "services/worker/model/run/loader.h"
#include "services/worker/server/grpc/worker_server.h"
#include "services/worker/text/text_model.h"

namespace continuo::worker {
namespace {

// Beyond the drain's own time, until the server is shut down; and for that.
constexpr absl::Duration kPatience = absl::Seconds(10);

[[noreturn]] void Fail(const absl::Status& status) {
  common::LogAndExit(1, "the worker ends", {{"reason", status.ToString()}});
}

// `failure` with what the driver tells of the devices. Waits for that a little, so nothing that
// streams wait for calls it: theirs end before the process does.
absl::Status Explain(kernels::DeviceFaults* faults, const absl::Status& failure) {
  return faults == nullptr ? failure : faults->Explain(failure);
}

void LogDeviceNote(const kernels::DeviceNote& note) {
  switch (note.kind) {
    case kernels::DeviceNote::Kind::kFault:
      common::Log(common::LogSeverity::kWarning, "a device's driver tells of a fault",
                  {{"fault", note.text}});
      break;
    case kernels::DeviceNote::Kind::kUnheard:
      common::Log(common::LogSeverity::kInfo, "faults of devices are not heard of",
                  {{"reason", note.text}});
      break;
    case kernels::DeviceNote::Kind::kPartUnheard:
      common::Log(common::LogSeverity::kInfo, "faults of some devices are not heard of",
                  {{"reason", note.text}});
      break;
  }
}

// A model and its text, loaded.
struct Loaded {
  std::unique_ptr<text::TextModel> text;
  model::LoadedModel model;
  std::shared_ptr<engine::Drafter> draft_model;  // null unless --speculation=draft
};

// `faults` is set as soon as the devices are found, and stays null on the CPU.
absl::StatusOr<Loaded> Load(const WorkerConfig& config, const Clock* clock,
                            std::shared_ptr<kernels::DeviceFaults>* faults) {
  Loaded loaded;
  ASSIGN_OR_RETURN(model::LoadOptions options, PlanLoad(config, common::AvailableMemoryBytes()));
  ASSIGN_OR_RETURN(*faults,
                   kernels::WatchDeviceFaults(
                       {.device = config.device, .clock = clock, .on_note = LogDeviceNote}));
  options.on_stuck = [faults = *faults](const absl::Status& failure) {
    Fail(Explain(faults.get(), failure));
  };
  ASSIGN_OR_RETURN(loaded.text, text::TextModel::Open(config.model));
  std::optional<DraftModel> draft;
  if (config.speculation == "draft") {
    ASSIGN_OR_RETURN(draft, DraftModel::Load(config, options, *loaded.text));
    options.other_block_bytes = draft->bytes_per_block();
  }
  ASSIGN_OR_RETURN(loaded.model, model::LoadExecutor(options));
  if (draft.has_value()) {
    ASSIGN_OR_RETURN(loaded.draft_model, std::move(*draft).MakeDrafter(loaded.model, clock));
  }
  return loaded;
}

int Main(int argc, char** argv) {
  ParsedConfig parsed = ParseWorkerConfig(argc, argv);
  if (parsed.exit_code.has_value()) return *parsed.exit_code;
  const WorkerConfig& config = parsed.config;
  common::PrepareProcess();
  kernels::PrepareDevices(config.device);
  common::ShutdownSignal shutdown;

  const SystemClock clock;
  // Declared before the server, so that they outlive it.
  std::shared_ptr<kernels::DeviceFaults> faults;
  absl::StatusOr<Loaded> loaded = absl::UnavailableError("not loaded yet");
  std::unique_ptr<common::SpanExporter> spans;
  if (!config.spans.endpoint.empty()) {
    auto opened = common::SpanExporter::Open(
        {.target = config.spans, .service = "continuo-worker", .instance = config.worker_name});
    if (!opened.ok()) Fail(opened.status());
    spans = *std::move(opened);
  }
  server::WorkerServerOptions options;
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
  auto started = server::WorkerServer::Start(options, &clock);
  if (!started.ok()) Fail(started.status());
  server::WorkerServer& server = **started;
  common::Log(common::LogSeverity::kInfo, "loading",
              {{"address", server.address()},
               {"model", config.model_name},
               {"version", common::Version()}});

  absl::Notification done;
  std::thread loader([&] {
    loaded = Load(config, &clock, &faults);
    done.Notify();
  });
  while (!done.HasBeenNotified()) {
    if (!shutdown.WaitFor(absl::Milliseconds(10)).has_value()) continue;
    common::Log(common::LogSeverity::kInfo, "ended while loading");
    std::_Exit(0);
  }
  loader.join();
  if (!loaded.ok()) Fail(Explain(faults.get(), loaded.status()));
  model::LoadedModel& model = loaded->model;
  if (model.num_threads > config.threads) {
    common::Log(common::LogSeverity::kWarning,
                "each rank computes on a thread of its own, more than --threads",
                {{"threads", config.threads},
                 {"computing", model.num_threads},
                 {"ranks", model.ranks.size()}});
  }
  if (config.device != "cpu" && config.weights == "auto" && model.weight_format == "fp32") {
    common::Log(common::LogSeverity::kWarning,
                "weights are fp32: --weights=bf16 or fp16 takes half the memory");
  }
  if (!model.cache_status.ok()) {
    common::Log(common::LogSeverity::kWarning, "the weights were packed anew",
                {{"reason", model.cache_status.ToString()}});
  }
  const server::ServedModel served = DescribeModel(config, model, loaded->text.get());
  common::Log(common::LogSeverity::kInfo, "loaded",
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
  engine::EngineOptions engine_options = MakeEngineOptions(config, model);
  if (loaded->draft_model != nullptr) engine_options.drafter = loaded->draft_model;
  server.Serve(served, engine_options, model.executor.get(),
               [&faults](const absl::Status& failure) { Fail(Explain(faults.get(), failure)); });
  common::Log(common::LogSeverity::kInfo, "listening",
              {{"address", server.address()},
               {"metrics_address", server.metrics_address()},
               {"worker", config.worker_name}});

  shutdown.Wait();
  common::Log(common::LogSeverity::kInfo, "draining", {{"grace", config.drain_grace}});
  server.BeginDrain(config.drain_grace);
  const absl::Duration last =
      clock.Elapsed() + config.drain_grace + server::Lifecycle::kSpread + kPatience;
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
  common::Log(common::LogSeverity::kInfo, "ended");
  return 0;
}

}  // namespace
}  // namespace continuo::worker

int main(int argc, char** argv) { return continuo::worker::Main(argc, argv); }
