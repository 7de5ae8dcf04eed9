// SPDX-License-Identifier: Apache-2.0
#include "services/worker/config.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/device_options.h"
#include "services/base/host_name.h"
#include "services/base/status_macros.h"
#include "services/base/utf8.h"
#include "services/common/container.h"
#include "services/common/flags.h"
#include "services/common/telemetry/metrics.h"
#include "services/protocol/limits.h"
#include "services/worker/model/adapter/adapter_config.h"
#include "services/worker/model/checkpoint/weight_schemes.h"
#include "services/worker/model/load/precision.h"
#include "services/worker/model_place.h"
#include "services/worker/server/lifetime/lifecycle.h"
#include "services/worker/server/runtime/served_adapters.h"
#include "services/worker/text/response/response_formats.h"

namespace continuo::worker {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();
// In memory beside those of the start, where no flag says otherwise.
constexpr size_t kDefaultRunTimeAdapters = 16;

std::vector<std::string> ToolFormatNames() {
  std::vector<std::string> names = {"auto", "none"};
  for (const std::string_view name : text::ResponseFormatNames()) names.emplace_back(name);
  return names;
}

// The host's name, which is the pod's, with a suffix that distinguishes several workers of a host.
std::string NameOfWorker(const std::string& listen) {
  const std::string host = HostName("");
  if (host.empty()) return "worker";
  const std::string port = listen.substr(listen.rfind(':') + 1);
  if (port == "50051") return host;
  if (port == "0") return absl::StrCat(host, "#", getpid());
  return absl::StrCat(host, ":", port);
}

void AddServerFlags(common::Flags& flags, WorkerConfig& c) {
  flags.Text("worker_name", &c.worker_name,
             "Name in logs, metrics and reports. Default: the host's name.");
  flags.Address("listen", &c.listen, "Address of the gRPC server.");
  common::AddMetricsFlags(flags, &c.metrics_listen, &c.metrics_token_file);
  common::AddOtlpFlags(flags, &c.otlp);
  flags.LogLevel(&c.log_level);
  flags.Text("tls_cert_file", &c.tls.cert_file, "PEM certificate that clients are shown.");
  flags.Text("tls_key_file", &c.tls.key_file, "PEM key of --tls_cert_file.");
  flags.Text("tls_ca_file", &c.tls.ca_file,
             "PEM CA that has to have issued clients' certificates.");
  flags.TextList(
      "tls_client_names", &c.tls_client_names,
      "Names, separated by commas, of which a client's certificate needs one: DNS names, "
      "with * for their first label, and URIs such as SPIFFE ids, with * for their last "
      "segment. Empty: any certificate of the CA.");
  flags.Text("token_file", &c.token_file,
             "File of the tokens of the fleet, one a line, of which callers need one. It is read "
             "again when it changes. Empty: none is needed.");
  flags.Switch("open_inference", &c.open_inference,
               "With --tls_client_names or --token_file, answer others, too, where they call "
               "InferenceService, as one tenant. For endpoint pickers.");
  flags.Bytes("max_receive_bytes", &c.max_receive_bytes, 1 << 20, 1 << 30,
              "Size of one message from a client.");
  flags.Bytes("max_buffer_bytes", &c.max_buffer_bytes, 1 << 20, uint64_t{1} << 40,
              "Memory of all connections together, for data received from clients and data not yet "
              "sent to them.");
  flags.Integer("max_streams_per_connection", &c.max_streams_per_connection, 1, kMaxInt,
                "Number of calls at a time on one gRPC connection. The client delays those "
                "beyond it.");
  flags.Duration("drain_grace", &c.drain_grace, absl::ZeroDuration(), protocol::kMaxDrainGrace,
                 "Time that streams may go on after SIGTERM before they migrate.");
}

void AddModelFlags(common::Flags& flags, WorkerConfig& c, std::vector<std::string>& adapters) {
  model::LoadOptions& load = c.load;
  flags.Text("model", &load.source.dir,
             "Folder of a Hugging Face model, also one in a hub's cache; a GGUF file, of several "
             "parts the first; a manifest of an Ollama store; or hf://org/name[@revision][:file], "
             "a model of the hub that HF_ENDPOINT names.");
  flags.Require("model", [&c] { return c.describe == "registry"; });
  flags.OptionalChoice("describe", &c.describe, {"text", "json", "registry"},
                       "Print what would be loaded, with its memory and what is missing, and exit "
                       "with 0 where the model would run, else with 1. registry: what the program "
                       "can load, as JSON; needs no model.");
  flags.Choice("task", &c.task, {"auto", "generate", "embed", "score"},
               "What the model is for. generate: answers. embed: vectors, of the last token, or of "
               "an encoder the mean of all, where no modules.json says otherwise. score: the "
               "relevance of documents, by the tokens yes and no where neither modules.json nor a "
               "head of scores says otherwise. auto: vectors or scores where a modules.json of "
               "sentence-transformers, a GGUF file's pooling_type, an encoder or a class for "
               "sequence classification says so, else answers.");
  flags.Switch("calibrate", &c.calibrate,
               "Load the model, measure what its steps cost, print that in JSON for `continuo "
               "simulate --cost`, and exit. Takes about a minute; the machine should be idle.");
  flags.Text(
      "model_name", &c.model_name,
      "Name that clients use for the model. Default: the name of its folder, of its GGUF file "
      "without .gguf, or of the hub's or the store's model.");
  flags.Choice("weights", &load.precision.weights, model::WeightSchemeNames(),
               "Format that weights are computed in. auto: as stored, but fp32 for stored fp16. "
               "int8 and int4 are rounded at load, in groups of 64 and 32 columns (CUDA: 128 and "
               "64); int4 keeps what is sensitive to rounding in int8. stored (CPU): the "
               "integers of a quantised file, not rounded again, each matrix in the file's own "
               "groups. fp16 (CUDA) also sets the activations' type. fp8 (CUDA, compute capability "
               "9.0) is rounded row by row and rounds activations, too.");
  flags.Text("weights_cache", &load.source.weights_cache,
             "Folder that keeps packed weights for the next start on the CPU. Takes as many bytes "
             "as the weights take in memory. Empty: off.");
  flags.Choice("kv_dtype", &load.precision.kv_dtype, model::KvTypeNames(),
               "Format of the KV cache. auto: the activations' type. fp16 needs fp16 weights. int8 "
               "and fp8 (e4m3, CUDA) take about half of bf16's memory, with a scale for each token "
               "and head.");
  flags.Text("allow_unread", &load.source.allow_unread,
             "Patterns, with commas between them, of fields of config.json and of tensors that may "
             "stay unread, for example rope_*,*.bias: * stands for any characters. A model with "
             "other ones that are not known is refused, since they may change its answers.");
  flags.Integer("max_context_tokens", &load.source.max_context_tokens, 0, kMaxInt,
                "Number of tokens of one sequence, prompt and answer together. 0: the model's "
                "context.");
  flags.Repeated("lora_adapter", &adapters,
                 "LoRA adapters of the model, as name=FOLDER, with commas between several: the "
                 "folder is one of PEFT, and requests name the adapter as their model.");
  flags.Text("lora_root", &load.run_time_adapters.root,
             "Folder of LoRA adapters that are read while the worker serves. Each folder in it is "
             "an adapter of that name, which is read for its first request; calls of LoadAdapter "
             "name other paths below. Empty: adapters are those of --lora_adapter.");
  flags.Integer("max_lora_adapters", &load.run_time_adapters.most, 0,
                static_cast<int>(server::kMostServedAdapters),
                "With --lora_root, the number of adapters in memory at a time, those of "
                "--lora_adapter included. 0: 16 beside these.");
  flags.Integer("max_lora_rank", &load.run_time_adapters.max_rank, 1, model::kMaxAdapterRank,
                "Largest rank of adapters in --lora_root. The memory of as many as "
                "--max_lora_adapters allows, of this rank and in fp32, is reserved, also on each "
                "device.");
  flags.Switch(
      "parse_special_in_content", &c.parse_special_in_content,
      "Special tokens written in the content of a conversation or in a pair of texts are such. "
      "Otherwise they are text, and control tokens come from the chat template alone.");
  flags.Switch("allow_request_chat_template", &c.allow_request_chat_template,
               "Render the chat template that a request brings instead of the model's. For clients "
               "that are trusted: a template can take much memory.");
  flags.Choice("tool_format", &c.tool_format, ToolFormatNames(),
               "Format in which the model writes calls of tools. auto: its own response_template, "
               "else the one that its chat template renders. none: answers have no calls.");
}

void AddDeviceFlags(common::Flags& flags, WorkerConfig& c, std::string& experiments) {
  kernels::DeviceOptions& device = c.load.device;
  flags.Text("device", &device.device,
             "Device to compute on: cpu, or in builds with CUDA cuda:0 or cuda:0,1,2,3, with one "
             "rank on each.");
  flags.Integer("tensor_parallel", &c.load.tensor_parallel, 1, 8,
                "Number of ranks that the model is split over: 1, 2, 4 or 8.");
  flags.Integer(
      "threads", &device.num_threads, 1, 1024,
      "Number of host threads that compute, of all ranks together; each rank has at least one. "
      "Default: the CPUs of the container.");
  flags.Choice("isa", &device.isa, {"auto", "scalar", "avx2", "avx512", "avx512_bf16", "neon"},
               "Instruction set of the CPU. auto: the best one that the CPU has. A fixed one gives "
               "a mixed fleet the same arithmetic.");
  flags.Switch("deterministic", &device.deterministic,
               "Make tokens independent of the load, at some cost on CUDA. The CPU always does.");
  flags.Switch("fp8_fast_accumulation", &device.fp8_fast_accumulation,
               "With --weights=fp8, accumulate in the tensor cores' 14 bits instead of in fp32. "
               "Faster for prefill and large batches, less exact.");
  flags.Switch("cuda_graphs", &device.graphs,
               "Capture steps that only decode as CUDA graphs at start and replay them. false: "
               "launch each kernel.");
  flags.Text("cuda_experiments", &experiments,
             absl::StrCat("Switches for CUDA developers, a comma-separated list of ",
                          absl::StrJoin(kernels::ExperimentNames(), ", "), "."));
}

void AddBatchFlags(common::Flags& flags, WorkerConfig& c) {
  model::LoadOptions& load = c.load;
  flags.Bytes("kv_cache_memory", &load.kv.memory_bytes, 0, uint64_t{1} << 50,
              "Size of the KV cache of all ranks together, in bytes. 0: the memory that the "
              "container or the CUDA devices have left.");
  flags.Integer("kv_blocks", &load.kv.num_blocks, 0, kMaxInt,
                "Size of the KV cache in blocks. 0: as many as --kv_cache_memory holds.");
  flags.Integer("block_size", &load.kv.block_size, 1, 1024, "Size of a KV block, in tokens.");
  flags.Integer("max_batch_tokens", &load.max_batch_tokens, 1, model::kMaxBatchTokens,
                "Number of tokens of one step, of all sequences together.");
  flags.Integer("max_prefill_chunk", &c.max_prefill_chunk, 1, model::kMaxBatchTokens,
                "Number of tokens of one prompt in a step.");
  // As many sequences as a grid of CUDA blocks can have in its second and third dimension.
  constexpr int kMostRunning = (1 << 16) - 1;
  flags.Integer("max_running", &c.max_running, 1, kMostRunning,
                "Number of sequences in the batch.");
  flags.Integer("state_slots", &c.state_slots, 0, 1 << 20,
                "Number of slots for recurrent states, of models that have them. Half as many "
                "sequences run; the others keep prefixes. 0: four for each of --max_running, "
                "in at most a quarter of the memory that is left.");
  flags.Integer<int64_t>(
      "max_queued_tokens", &c.max_queued_tokens, 1, int64_t{1} << 40,
      "Number of prompt tokens that wait; a sequence counts at least one. Requests "
      "beyond are rejected.");
  flags.Choice(
      "speculation", &c.speculation, {"lookup", "draft", "mtp", "off"},
      "Source of draft tokens, which steps check while that pays. lookup: repetitions in "
      "the sequence itself. draft: the model of --draft_model. mtp: the model's own module "
      "for multi-token prediction, which some files have. Answers do not depend on it.");
  flags.Text(
      "draft_model", &c.draft_model,
      "A smaller model with the same tokenizer, as --model names one, for --speculation=draft.");
  flags.Integer("max_draft_tokens", &c.max_draft_tokens, 1, 64,
                "Number of draft tokens of one sequence in a step.");
  flags.Switch("always_draft", &c.always_draft,
               "Check drafts also where they do not pay and make steps long, for example to "
               "measure how many are right.");
}

// Checks rules between flags. Returns what is wrong, empty where they fit together.
std::string Contradiction(const WorkerConfig& c) {
  const int ranks = c.load.tensor_parallel;
  if ((ranks & (ranks - 1)) != 0) {
    return absl::StrCat("--tensor_parallel=", ranks, " is not 1, 2, 4 or 8");
  }
  if ((c.speculation == "draft") != !c.draft_model.empty()) {
    return "--speculation=draft and --draft_model need each other";
  }
  if (c.calibrate && !c.describe.empty()) return "--calibrate and --describe exclude each other";
  if (c.calibrate && c.speculation == "draft") {
    return "--calibrate measures one model, without --draft_model";
  }
  if (c.load.device.fp8_fast_accumulation && c.load.precision.weights != "fp8") {
    return "--fp8_fast_accumulation needs --weights=fp8";
  }
  if (c.max_buffer_bytes < c.max_receive_bytes) {
    return absl::StrCat("--max_buffer_bytes=", c.max_buffer_bytes,
                        " does not hold one message of --max_receive_bytes=", c.max_receive_bytes);
  }
  return "";
}

// Puts the places of the models where their paths are.
absl::Status FindPlaces(WorkerConfig& c) {
  ASSIGN_OR_RETURN(ModelPlace place, FindModelPlace(c.load.source.dir));
  c.load.source.dir = std::move(place.path);
  if (c.model_name.empty()) c.model_name = std::move(place.name);
  if (c.draft_model.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(place, FindModelPlace(c.draft_model));
  c.draft_model = std::move(place.path);
  return absl::OkStatus();
}

// Reads the values of --lora_adapter. The model has its name by now.
absl::Status ReadAdapters(const std::vector<std::string>& values, WorkerConfig& c) {
  const auto error = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("--lora_adapter: ", parts...));
  };
  std::vector<std::string> items;
  for (const std::string& value : values) {
    for (const auto item : absl::StrSplit(value, ',')) items.push_back(std::string(item));
  }
  if (items.size() > server::kMostServedAdapters) {
    return error(items.size(), " adapters are more than ", server::kMostServedAdapters);
  }
  for (const std::string& item : items) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == item.size()) {
      return error("\"", item, "\" is not of the form name=FOLDER");
    }
    model::AdapterSource source = {.name = item.substr(0, equals), .dir = item.substr(equals + 1)};
    if (source.name.size() > protocol::kMaxModelNameBytes || !IsUtf8(source.name)) {
      return error("a name is no UTF-8 of at most ", protocol::kMaxModelNameBytes, " bytes");
    }
    const auto is_same = [&](const model::AdapterSource& other) {
      return other.name == source.name;
    };
    if (source.name == c.model_name || std::ranges::any_of(c.load.adapters, is_same)) {
      return error("the name \"", source.name, "\" is that of another model");
    }
    c.load.adapters.push_back(std::move(source));
  }
  return absl::OkStatus();
}

// Settles how many adapters may be in memory. Those of the start are known by now.
absl::Status LimitAdapters(const common::Flags& flags, WorkerConfig& c) {
  model::RunTimeAdapters& later = c.load.run_time_adapters;
  if (later.root.empty()) {
    for (const std::string_view name : {"max_lora_adapters", "max_lora_rank"}) {
      if (!flags.given(name)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--", std::string(name), " is of no use without --lora_root"));
    }
    return absl::OkStatus();
  }
  const size_t at_start = c.load.adapters.size();
  if (later.most == 0) {
    later.most =
        static_cast<int>(std::min(at_start + kDefaultRunTimeAdapters, server::kMostServedAdapters));
  }
  if (static_cast<size_t>(later.most) > at_start) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--max_lora_adapters=", later.most,
                                                 " leaves no room beside the ", at_start,
                                                 " adapters of --lora_adapter"));
}

int BadCommandLine(std::string_view text) {
  std::cerr << "continuo-worker: " << text << "\n";
  return 2;
}

}  // namespace

ParsedConfig ParseWorkerConfig(int argc, const char* const* argv) {
  ParsedConfig parsed;
  WorkerConfig& c = parsed.config;
  c.load.device.num_threads = common::AvailableThreads();
  std::string experiments;
  common::Flags flags("continuo-worker",
                      "Serves one model: continuous batching over a paged KV cache.");
  std::vector<std::string> adapters;
  AddModelFlags(flags, c, adapters);
  AddServerFlags(flags, c);
  AddDeviceFlags(flags, c, experiments);
  AddBatchFlags(flags, c);
  parsed.exit_code = flags.Parse(argc, argv);
  if (parsed.exit_code.has_value()) return parsed;
  if (const absl::Status status = kernels::ApplyExperiments(experiments, c.load.device);
      !status.ok()) {
    parsed.exit_code = BadCommandLine(absl::StrCat("--cuda_experiments: ", status.message()));
  } else if (const std::string contradiction = Contradiction(c); !contradiction.empty()) {
    parsed.exit_code = BadCommandLine(contradiction);
  }
  if (const absl::Status status = FindPlaces(c); !c.describe.empty()) {
    c.place_status = status;
  } else if (!status.ok()) {
    parsed.exit_code = BadCommandLine(std::string(status.message()));
  }
  if (const absl::Status status = ReadAdapters(adapters, c); !status.ok()) {
    parsed.exit_code = BadCommandLine(std::string(status.message()));
  }
  if (const absl::Status status = LimitAdapters(flags, c);
      !status.ok() && !parsed.exit_code.has_value()) {
    parsed.exit_code = BadCommandLine(std::string(status.message()));
  }
  if (c.worker_name.empty()) c.worker_name = NameOfWorker(c.listen);
  return parsed;
}

}  // namespace continuo::worker
