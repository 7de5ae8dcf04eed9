// SPDX-License-Identifier: Apache-2.0
#include "services/worker/worker_process.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "services/base/status_macros.h"
#include "services/common/container.h"
#include "services/common/log.h"
#include "services/common/version.h"
#include "services/worker/adapter_folder.h"
#include "services/worker/draft_model.h"
#include "services/worker/fetch_models.h"
#include "services/worker/plan_load.h"
#include "services/worker/serving.h"

namespace continuo::worker {
namespace {

// Time beyond the drain's own until the server is shut down, and time that the shutdown may take.
constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr absl::Duration kPoll = absl::Milliseconds(10);

void LogDeviceNote(const kernels::DeviceNote& note) {
  switch (note.kind) {
    case kernels::DeviceNote::Kind::kFault:
      common::Log(common::LogSeverity::kWarning, "a device's driver tells of a fault",
                  {{"fault", note.text}});
      break;
    case kernels::DeviceNote::Kind::kEventsUnavailable:
      common::Log(common::LogSeverity::kInfo, "the driver reports no faults of devices",
                  {{"reason", note.text}});
      break;
    case kernels::DeviceNote::Kind::kEventsIncomplete:
      common::Log(common::LogSeverity::kInfo, "the driver does not report all faults of devices",
                  {{"reason", note.text}});
      break;
  }
}

}  // namespace

// Adds the faults that the driver reports to the failure. This may wait, so it is called only where
// no stream waits: streams end before the process does.
void WorkerProcess::Fail(const absl::Status& failure) const {
  const absl::Status status = faults_ == nullptr ? failure : faults_->Explain(failure);
  common::LogAndExit(1, "the worker ends", {{"reason", status.ToString()}});
}

void WorkerProcess::Run() {
  StartServer();
  LoadOrExit();
  Serve();
  shutdown_.Wait();
  Drain();
}

void WorkerProcess::StartServer() {
  if (!config_.otlp.endpoint.empty()) {
    auto opened = common::SpanExporter::Open(
        {.target = config_.otlp,
         .source = {.service = "continuo-worker", .instance = config_.worker_name}});
    if (!opened.ok()) Fail(opened.status());
    spans_ = *std::move(opened);
  }
  server::WorkerServerOptions options;
  options.spans = spans_.get();
  options.listen = config_.listen;
  options.metrics_listen = config_.metrics_listen;
  options.metrics_token_file = config_.metrics_token_file;
  options.tls = config_.tls;
  options.tls_client_names = config_.tls_client_names;
  options.token_file = config_.token_file;
  options.open_inference = config_.open_inference;
  options.worker_name = config_.worker_name;
  options.model_name = config_.model_name;
  std::error_code no_path;
  options.model_path = std::filesystem::absolute(config_.load.source.dir, no_path).string();
  for (const model::AdapterSource& adapter : config_.load.adapters) {
    options.adapter_names.push_back(adapter.name);
  }
  options.drain_grace = config_.drain_grace;
  options.max_receive_bytes = static_cast<int>(config_.max_receive_bytes);
  options.max_buffer_bytes = config_.max_buffer_bytes;
  options.max_concurrent_streams = config_.max_streams_per_connection;
  // A step on a CPU is only slow. A step on a CUDA device may never end: then the process ends, and
  // gateways continue its streams elsewhere.
  const std::string& device = config_.load.device.device;
  if (device != "cpu") {
    options.on_hang = [this, &device] {
      Fail(absl::DeadlineExceededError(absl::StrCat("a step hangs on ", device)));
    };
  }
  auto started = server::WorkerServer::Start(options, &clock_);
  if (!started.ok()) Fail(started.status());
  server_ = *std::move(started);
  common::Log(common::LogSeverity::kInfo, "loading",
              {{"address", server_->address()},
               {"model", config_.model_name},
               {"version", common::Version()}});
}

void WorkerProcess::LoadOrExit() {
  absl::Notification done;
  std::thread loader([&] {
    loaded_ = Load();
    done.Notify();
  });
  while (!done.HasBeenNotified()) {
    if (!shutdown_.WaitFor(kPoll).has_value()) continue;
    common::Log(common::LogSeverity::kInfo, "ended while loading");
    std::_Exit(0);
  }
  loader.join();
  if (!loaded_.ok()) Fail(loaded_.status());
}

absl::StatusOr<WorkerProcess::Loaded> WorkerProcess::Load() {
  Loaded loaded;
  ASSIGN_OR_RETURN(const WorkerConfig config, FetchModels(config_, &clock_));
  ASSIGN_OR_RETURN(model::LoadOptions options, PlanLoad(config, common::AvailableMemoryBytes()));
  ASSIGN_OR_RETURN(
      faults_, kernels::WatchDeviceFaults(
                   {.device = options.device.device, .clock = &clock_, .on_note = LogDeviceNote}));
  options.on_stuck = [this](const absl::Status& failure) { Fail(failure); };
  loaded.bundler = std::make_shared<text::TokenizerBundler>(options.source.dir);
  ASSIGN_OR_RETURN(loaded.text, text::TextModel::Open(options.source.dir));
  if (config_.tool_format != "auto") {
    RETURN_IF_ERROR(loaded.text->UseResponseFormat(config_.tool_format));
  }
  if (const std::string& root = options.run_time_adapters.root; !root.empty()) {
    absl::StatusOr<ConfinedFolder> folder = ConfinedFolder::Open(root);
    if (!folder.ok()) {
      return absl::Status(folder.status().code(),
                          absl::StrCat("--lora_root: ", folder.status().message()));
    }
    loaded.lora_root = *std::move(folder);
  }
  std::optional<DraftModel> draft;
  if (config_.speculation == "draft") {
    ASSIGN_OR_RETURN(draft, DraftModel::Open(config, options, *loaded.text));
    options.kv.other_block_bytes = draft->bytes_per_block();
  }
  ASSIGN_OR_RETURN(loaded.model, model::LoadModel(options));
  ASSIGN_OR_RETURN(loaded.heads, LoadHeads(config, loaded.model.config, *loaded.text));
  if (draft.has_value()) {
    ASSIGN_OR_RETURN(loaded.draft_model, std::move(*draft).MakeDrafter(loaded.model, &clock_));
  }
  loaded.config = config;
  return loaded;
}

void WorkerProcess::LogLoaded(const server::ServedModel& served) const {
  const model::LoadedModel& model = loaded_->model;
  const kernels::DeviceOptions& device = config_.load.device;
  if (model.num_threads > device.num_threads) {
    common::Log(common::LogSeverity::kWarning,
                "each rank computes on a thread of its own, more than --threads",
                {{"threads", device.num_threads},
                 {"computing", model.num_threads},
                 {"ranks", model.ranks.size()}});
  }
  if (device.device != "cpu" && config_.load.precision.weights == "auto" &&
      model.weight_format == "fp32") {
    common::Log(common::LogSeverity::kWarning,
                "weights are fp32: --weights=bf16 or fp16 takes half the memory");
  }
  if (!model.cache_status.ok()) {
    common::Log(common::LogSeverity::kWarning, "the weights were packed anew",
                {{"reason", model.cache_status.ToString()}});
  }
  for (const auto* warnings : {&model.config.warnings, &loaded_->text->warnings()}) {
    for (const std::string& warning : *warnings) {
      common::Log(common::LogSeverity::kWarning, "the model is not served as its files say",
                  {{"reason", warning}});
    }
  }
  if (!loaded_->text->response_template_status().ok()) {
    common::Log(common::LogSeverity::kWarning, "the model's response_template is not used",
                {{"reason", loaded_->text->response_template_status().ToString()}});
  }
  if (served.eos_ids.empty() && served.generates()) {
    common::Log(common::LogSeverity::kWarning,
                "the model names no token that ends an answer: answers go on to max_tokens");
  }
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
               {"state_slots", model.num_state_slots},
               {"graph_bytes", model.ranks[0].graph_bytes},
               {"context", served.max_context_tokens},
               {"adapters", model.adapters.size()},
               {"task", served.generates()        ? "generate"
                        : served.score == nullptr ? "embed"
                                                  : "score"},
               {"pairs", served.score == nullptr   ? ""
                         : served.pairs == nullptr ? "the tokenizer"
                                                   : std::string(served.pairs->source())},
               {"tool_format", loaded_->text->response_format().name},
               {"end_tokens", ShowTokens(served.eos_ids, *loaded_->text)},
               {"fingerprint", served.fingerprint}});
}

void WorkerProcess::Serve() {
  model::LoadedModel& model = loaded_->model;
  const server::ServedModel served =
      DescribeModel(loaded_->config, model, loaded_->text.get(), loaded_->heads, loaded_->bundler);
  LogLoaded(served);
  engine::EngineOptions options = MakeEngineOptions(loaded_->config, model, &clock_);
  if (loaded_->draft_model != nullptr) options.drafter = loaded_->draft_model;
  std::unique_ptr<server::AdapterLoader> loader;
  if (loaded_->lora_root.has_value()) {
    loader = std::make_unique<AdapterFolder>(*loaded_->lora_root, model.adapter_pool, served);
  }
  server_->Serve(
      served, options, model.executor.get(), [this](const absl::Status& failure) { Fail(failure); },
      DescribeAdapters(served, model.adapters), std::move(loader));
  // What serves them keeps them.
  model.adapters.clear();
  common::Log(common::LogSeverity::kInfo, "listening",
              {{"address", server_->address()},
               {"metrics_address", server_->metrics_address()},
               {"worker", config_.worker_name}});
}

void WorkerProcess::Drain() {
  common::Log(common::LogSeverity::kInfo, "draining", {{"grace", config_.drain_grace}});
  server_->BeginDrain(config_.drain_grace);
  const absl::Duration last =
      clock_.Elapsed() + config_.drain_grace + server::Lifecycle::kSpread + kPatience;
  while (!server_->drained() && clock_.Elapsed() < last) {
    if (shutdown_.WaitFor(kPoll).has_value()) break;  // a second signal
  }
  // An engine that hangs ends neither its streams nor itself.
  absl::Notification ended;
  std::thread watchdog([&] {
    if (ended.WaitForNotificationWithTimeout(kPatience)) return;
    Fail(absl::DeadlineExceededError("the engine hangs"));
  });
  server_->Shutdown();
  ended.Notify();
  watchdog.join();
  common::Log(common::LogSeverity::kInfo, "ended");
}

}  // namespace continuo::worker
