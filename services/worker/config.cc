// SPDX-License-Identifier: Apache-2.0
#include "services/worker/config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/container.h"
#include "services/common/flags.h"
#include "services/worker/draft_model.h"
#include "services/worker/engine/draft/prompt_lookup.h"
#include "services/worker/server/lifetime/lifecycle.h"

namespace continuo::worker {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();

std::string NameOfFolder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path folder = std::filesystem::absolute(path, ignored).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  std::string name = folder.filename().string();
  return name.empty() ? "model" : name;
}

// The folder itself where `path` is a link to one: whoever moves the link meanwhile does not mix
// the files of two models.
std::string WithoutLinks(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  const std::filesystem::path folder = std::filesystem::canonical(path, error);
  return error ? path : folder.string();
}

// The host's name, which is the pod's, with what tells several workers of one host apart.
std::string NameOfWorker(const std::string& listen) {
  std::array<char, 256> host = {};
  if (gethostname(host.data(), host.size() - 1) != 0) return "worker";
  const std::string port = listen.substr(listen.rfind(':') + 1);
  if (port == "50051") return host.data();
  if (port == "0") return absl::StrCat(host.data(), "#", getpid());
  return absl::StrCat(host.data(), ":", port);
}

void AddFlags(common::Flags& flags, WorkerConfig& c) {
  flags.Text("model", &c.model, "Folder of a Hugging Face model (required)");
  flags.Text("model_name", &c.model_name, "Name that clients use; default: the folder's name");
  flags.Text("worker_name", &c.worker_name, "Name for people and metrics; default: the host's");
  flags.Text("device", &c.device,
             "cpu, or in builds with CUDA cuda:0 or cuda:0,1,2,3: a rank on each");
  flags.Address("listen", &c.listen, "Address of the gRPC server");
  flags.Address("metrics_listen", &c.metrics_listen, "Address of /metrics and /healthz");
  common::AddSpanFlags(flags, &c.spans);
  flags.Text("tls_cert_file", &c.tls.cert_file, "PEM certificate of this server");
  flags.Text("tls_key_file", &c.tls.key_file, "PEM key of the certificate");
  flags.Text("tls_ca_file", &c.tls.ca_file, "PEM CA that clients have to be of (mutual TLS)");
  flags.Bytes("max_receive_bytes", &c.max_receive_bytes, 1 << 20, 1 << 30,
              "Largest message taken from a client");
  flags.Bytes("max_buffer_bytes", &c.max_buffer_bytes, 1 << 20, uint64_t{1} << 40,
              "What all connections may hold in memory, before it is known who sends it");
  flags.Integer("max_streams_per_connection", &c.max_streams_per_connection, 1, kMaxInt,
                "Calls at a time on one connection");
  flags.Integer("tensor_parallel", &c.tensor_parallel, 1, 8,
                "Ranks that the model is split over: 1, 2, 4 or 8");
  flags.Integer("threads", &c.threads, 1, 1024,
                "Threads that compute, of all ranks together, at least one each; default: what the "
                "container has");
  flags.Choice("isa", &c.isa, {"auto", "scalar", "avx2", "avx512", "avx512_bf16", "neon"},
               "Instruction set of the CPU; pins a mixed fleet to one arithmetic path");
  flags.Choice(
      "weights", &c.weights, {"auto", "fp32", "bf16", "fp16", "int8", "int4", "fp8"},
      "Format that weights are computed in; auto is as stored, but fp32 for what is stored in "
      "fp16; fp16 (CUDA devices) is for activations, too; int8 and int4 are rounded at load, in "
      "groups of 128 and 64, fp8 (CUDA devices of compute capability 9.0) row by row, activations "
      "too");
  flags.Text(
      "weights_cache", &c.weights_cache,
      "Folder that keeps packed weights for the next start on the CPU, of as many bytes as they "
      "take in memory; empty: off");
  flags.Choice(
      "kv_dtype", &c.kv_dtype, {"auto", "fp32", "bf16", "fp16", "int8", "fp8"},
      "Format of the KV cache; auto is the activations'; fp16 goes with fp16 weights alone; int8 "
      "and fp8 (e4m3, CUDA devices) take about half of bf16's memory, with a scale per token and "
      "head");
  flags.Integer("max_context_tokens", &c.max_context_tokens, 0, kMaxInt,
                "Tokens of one sequence, prompt and answer; 0 is the model's");
  flags.Bytes("kv_cache_memory", &c.kv_cache_memory, 0, uint64_t{1} << 50,
              "KV cache of all ranks together; 0 is what the container's, or the CUDA devices', "
              "memory leaves");
  flags.Integer("kv_blocks", &c.kv_blocks, 0, kMaxInt,
                "KV cache in blocks instead; 0 is what kv_cache_memory holds");
  flags.Integer("block_size", &c.block_size, 1, 1024, "Tokens of a KV block");
  flags.Integer("max_batch_tokens", &c.max_batch_tokens, 1, model::kMaxBatchTokens,
                "Rows of a step");
  flags.Integer("max_prefill_chunk", &c.max_prefill_chunk, 1, model::kMaxBatchTokens,
                "Rows of one prompt in a step");
  flags.Integer("max_running", &c.max_running, 1, 1 << 16, "Sequences in the batch");
  flags.Integer<int64_t>("max_queued_tokens", &c.max_queued_tokens, 1, int64_t{1} << 40,
                         "Prompt tokens that may wait, at least one for each sequence; more is "
                         "refused");
  flags.Choice(
      "speculation", &c.speculation, {"lookup", "draft", "off"},
      "Where drafts come from that a step checks beside the tokens of its sequences, while "
      "that pays: lookup is the sequence itself, where it repeats itself, draft is "
      "--draft_model. No token depends on it");
  flags.Text("draft_model", &c.draft_model,
             "Folder of a smaller model with the same tokenizer, for --speculation=draft");
  flags.Integer("max_draft_tokens", &c.max_draft_tokens, 1, 64, "Drafts of one sequence in a step");
  flags.Duration("drain_grace", &c.drain_grace, absl::ZeroDuration(), server::kMaxDrainGrace,
                 "How long streams may go on after SIGTERM before they are handed over");
  flags.Switch("deterministic", &c.deterministic,
               "Tokens do not depend on the load, at some cost on CUDA; always so on the CPU");
  flags.Switch(
      "fp8_fast_accumulation", &c.fp8_fast_accumulation,
      "With --weights=fp8, products are added up in the tensor cores' sums of some 14 bits "
      "instead of in fp32: faster for prompts and many sequences, less exact");
  flags.Switch("cuda_graphs", &c.cuda_graphs,
               "Steps that only decode are CUDA graphs, made at start; false enqueues each kernel");
  flags.Switch("cuda_early_grids", &c.cuda_early_grids,
               "Kernels are started while the ones before them end, where the device can; no token "
               "depends on it");
  flags.Switch("cuda_warpgroup_attention", &c.cuda_warpgroup_attention,
               "Attention of prompts is by products of warpgroups on H100 and H200, unless tokens "
               "are deterministic or the KV cache is of bytes");
}

int BadCommandLine(std::string_view text) {
  std::cerr << "continuo-worker: " << text << "\n";
  return 2;
}

}  // namespace

ParsedConfig ParseWorkerConfig(int argc, const char* const* argv) {
  ParsedConfig parsed;
  WorkerConfig& c = parsed.config;
  c.threads = common::AvailableThreads();
  common::Flags flags("continuo-worker",
                      "Serves one model: continuous batching over a paged KV cache.");
  AddFlags(flags, c);
  parsed.exit_code = flags.Parse(argc, argv);
  if (parsed.exit_code.has_value()) return parsed;
  if (c.model.empty()) {
    parsed.exit_code = BadCommandLine("--model is missing: the folder of the model to serve");
  } else if ((c.tensor_parallel & (c.tensor_parallel - 1)) != 0) {
    parsed.exit_code = BadCommandLine(
        absl::StrCat("--tensor_parallel=", c.tensor_parallel, " is not 1, 2, 4 or 8"));
  } else if ((c.speculation == "draft") != !c.draft_model.empty()) {
    parsed.exit_code = BadCommandLine("--speculation=draft and --draft_model need each other");
  } else if (c.fp8_fast_accumulation && c.weights != "fp8") {
    parsed.exit_code = BadCommandLine("--fp8_fast_accumulation needs --weights=fp8");
  } else if (c.max_buffer_bytes < c.max_receive_bytes) {
    parsed.exit_code = BadCommandLine(
        absl::StrCat("--max_buffer_bytes=", c.max_buffer_bytes,
                     " does not hold one message of --max_receive_bytes=", c.max_receive_bytes));
  }
  if (c.model_name.empty()) c.model_name = NameOfFolder(c.model);
  c.model = WithoutLinks(c.model);
  c.draft_model = WithoutLinks(c.draft_model);
  if (c.worker_name.empty()) c.worker_name = NameOfWorker(c.listen);
  return parsed;
}

model::LoadOptions CommonLoad(const WorkerConfig& config) {
  model::LoadOptions load;
  load.device = config.device;
  load.isa = config.isa;
  load.threads = config.threads;
  load.weights = config.weights;
  load.weights_cache = config.weights_cache;
  load.kv_dtype = config.kv_dtype;
  load.block_size = config.block_size;
  load.max_batch_tokens = config.max_batch_tokens;
  load.fp8_fast_accumulation = config.fp8_fast_accumulation;
  load.graphs = config.cuda_graphs;
  load.early_grids = config.cuda_early_grids;
  load.warpgroup_attention = config.cuda_warpgroup_attention;
  return load;
}

absl::StatusOr<model::LoadOptions> PlanLoad(const WorkerConfig& config, uint64_t available_bytes) {
  model::LoadOptions load = CommonLoad(config);
  load.dir = config.model;
  load.tensor_parallel = config.tensor_parallel;
  load.max_context_tokens = config.max_context_tokens;
  load.deterministic = config.deterministic;
  if (config.device != "cpu") {
    // The loader sees what the devices have free.
    load.num_blocks = config.kv_blocks;
    load.kv_cache_memory = static_cast<int64_t>(config.kv_cache_memory);
    load.warm_up_sequences = config.max_running;
    return load;
  }
  ASSIGN_OR_RETURN(model::LoadEstimate estimate, model::EstimateLoad(load));
  if (config.speculation == "draft") {
    ASSIGN_OR_RETURN(const model::LoadOptions draft_load,
                     PlanDraftLoad(config, estimate.config.context_length));
    ASSIGN_OR_RETURN(const model::LoadEstimate draft, model::EstimateLoad(draft_load));
    estimate.weight_bytes += draft.weight_bytes;
    estimate.scratch_bytes += draft.scratch_bytes;
    estimate.bytes_per_block += draft.bytes_per_block;
  }

  const auto fixed = static_cast<uint64_t>(estimate.weight_bytes + estimate.scratch_bytes);
  const auto block = static_cast<uint64_t>(std::max<int64_t>(estimate.bytes_per_block, 1));
  const uint64_t left = available_bytes > fixed ? available_bytes - fixed : 0;
  uint64_t blocks = static_cast<uint64_t>(config.kv_blocks);
  if (blocks == 0 && config.kv_cache_memory > 0) blocks = config.kv_cache_memory / block;
  const bool by_flags = config.kv_blocks > 0 || config.kv_cache_memory > 0;
  if (by_flags && blocks > left / block) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the KV cache would take ", common::FormatBytes(blocks * block), ", beside ",
                     common::FormatBytes(fixed), " of weights and activations the container has ",
                     common::FormatBytes(left), "; lower --kv_cache_memory or --kv_blocks"));
  }
  if (!by_flags) {
    // A tenth stays free for prompts, answers and what else the process needs.
    const uint64_t useful = static_cast<uint64_t>(config.max_running) *
                            static_cast<uint64_t>(std::max(estimate.min_blocks, 1));
    blocks = std::min(left / 10 * 9 / block, useful);
  }
  if (blocks < static_cast<uint64_t>(estimate.min_blocks)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a KV cache of ", blocks, " blocks cannot hold one sequence of ",
        estimate.config.context_length, " tokens, which needs ", estimate.min_blocks, " blocks (",
        common::FormatBytes(static_cast<uint64_t>(estimate.min_blocks) * block),
        "); raise --kv_blocks or --kv_cache_memory, or lower --max_context_tokens"));
  }
  load.num_blocks = static_cast<int>(std::min<uint64_t>(blocks, kMaxInt));
  return load;
}

engine::EngineOptions MakeEngineOptions(const WorkerConfig& config,
                                        const model::LoadedModel& model) {
  engine::EngineOptions options;
  options.num_blocks = model.num_blocks;
  options.block_size = model.block_size;
  options.vocab_size = model.config.vocab_size;
  options.max_batch_tokens = config.max_batch_tokens;
  options.max_prefill_chunk = config.max_prefill_chunk;
  options.max_running = config.max_running;
  options.max_queued_tokens = config.max_queued_tokens;
  if (config.speculation == "lookup") options.drafter = std::make_shared<engine::PromptLookup>();
  options.max_drafts = config.max_draft_tokens;
  return options;
}

server::ServedModel DescribeModel(const WorkerConfig& config, const model::LoadedModel& model,
                                  const text::TextModel* text) {
  server::ServedModel served;
  served.name = config.model_name;
  served.architecture = model.config.architecture;
  served.worker = config.worker_name;
  served.max_context_tokens = model.config.context_length;
  served.vocab_size = model.config.vocab_size;
  served.num_parameters = static_cast<uint64_t>(model.num_parameters);
  served.weight_format = model.weight_format;
  const std::vector<std::string> text_parts = {absl::StrCat(text::kTextVersion),
                                               text->tokenizer_digest(), text->template_digest()};
  // An empty one equals nothing, not even itself.
  if (model.is_exact) served.fingerprint = model::MakeFingerprint(model.fingerprint, text_parts);
  served.tokenizer_fingerprint = text->tokenizer_digest();
  const model::GenerationDefaults& d = model.config.defaults;
  served.defaults.temperature = d.temperature;
  served.defaults.top_p = d.top_p;
  served.defaults.min_p = d.min_p;
  served.defaults.repetition_penalty = d.repetition_penalty;
  if (d.top_k.has_value()) served.defaults.top_k = static_cast<uint32_t>(*d.top_k);
  served.eos_ids = d.eos_token_ids;
  served.text = text;
  server::FinishServedModel(served);
  return served;
}

}  // namespace continuo::worker
