// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/telemetry/span_exporter.h"
#include "services/common/tls.h"
#include "services/worker/embedding/score_head.h"
#include "services/worker/embedding/sentence_modules.h"
#include "services/worker/model/load/load_options.h"

namespace continuo::worker {

// The values of the flags of continuo-worker. A field whose comment is missing is explained by its
// flag's help in config.cc.
struct WorkerConfig {
  // The form that --describe asks for: "text", "json" or "registry". Empty: the worker serves.
  std::string describe;
  bool calibrate = false;
  // Why the place of the model was not found, where `describe` has to tell it.
  absl::Status place_status;
  std::string model_name;  // default: the name of the model's folder
  std::string worker_name;
  bool parse_special_in_content = false;
  bool allow_request_chat_template = false;
  std::string tool_format = "auto";
  std::string listen = "0.0.0.0:50051";
  std::string metrics_listen = "0.0.0.0:9090";
  std::string metrics_token_file;
  common::TlsFiles tls;
  std::vector<std::string> tls_client_names;
  std::string token_file;
  bool open_inference = false;
  common::OtlpTarget otlp;
  std::string log_level = "info";
  uint64_t max_receive_bytes = 32 << 20;
  uint64_t max_buffer_bytes = uint64_t{1} << 30;
  int max_streams_per_connection = 4096;
  absl::Duration drain_grace = absl::Seconds(5);

  std::string task = "auto";
  // Set by ApplyTask where the model makes embeddings.
  std::optional<embedding::SentenceModules> embedding;
  // Set by ApplyTask where the model makes scores.
  std::optional<embedding::ScoreOptions> score;

  // The served model and its devices, as the flags say; ApplyTask and PlanLoad add what follows
  // from them and from the files.
  model::LoadOptions load;

  int max_prefill_chunk = 512;
  int max_running = 256;
  int state_slots = 0;  // 0: four for each of max_running
  int64_t max_queued_tokens = 262144;
  std::string speculation = "lookup";
  std::string draft_model;  // folder, for speculation=draft
  int max_draft_tokens = 8;
  bool always_draft = false;
};

// Either a configuration or the exit code: 0 after --help or --version, 2 after a bad command
// line, which is reported in one line on stderr.
struct ParsedConfig {
  WorkerConfig config;
  std::optional<int> exit_code;
};
ParsedConfig ParseWorkerConfig(int argc, const char* const* argv);

}  // namespace continuo::worker
