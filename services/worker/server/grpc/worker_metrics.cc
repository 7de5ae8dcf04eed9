// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/worker_metrics.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "services/common/telemetry/span_exporter.h"
#include "services/common/version.h"
#include "services/protocol/status_name.h"

namespace continuo::server {
namespace {

template <typename T>
double Read(const std::atomic<T>& value) {
  return static_cast<double>(value.load(std::memory_order_relaxed));
}

void CollectOwn(const engine::EngineMetrics& e, const RequestCounters& requests,
                const WorkerIdentity& identity, const Serving* serving,
                const common::SpanExporter* spans, common::MetricFamilies& f) {
  const common::MetricLabels model = {{"model", identity.model_name}};
  common::AddGauge(f, "continuo_running_requests", "Sequences in the batch.", model,
                   Read(e.running_requests));
  common::AddGauge(f, "continuo_waiting_requests", "Sequences that wait for the batch.", model,
                   Read(e.waiting_requests));
  common::AddGauge(f, "continuo_waiting_prompt_tokens", "Prompt tokens that wait for prefill.",
                   model, Read(e.waiting_prompt_tokens));
  common::AddGauge(f, "continuo_kv_blocks_used", "KV blocks in use by running sequences.", model,
                   Read(e.kv_blocks_used));
  common::AddGauge(f, "continuo_kv_blocks_cached", "KV blocks kept for their prefix only.", model,
                   Read(e.kv_blocks_cached));
  common::AddGauge(f, "continuo_kv_blocks_total", "KV blocks of the pool.", model,
                   Read(e.kv_blocks_total));
  common::AddGauge(
      f, "continuo_kv_blocks_unaccounted",
      "KV blocks that are neither used, cached nor free; 0 unless something is broken.", model,
      Read(e.kv_blocks_unaccounted));
  common::AddGauge(f, "continuo_state_slots_used",
                   "Slots in use for recurrent states of running sequences.", model,
                   Read(e.state_slots_used));
  common::AddGauge(f, "continuo_state_slots_kept", "Recurrent states kept for their prefix only.",
                   model, Read(e.state_slots_kept));
  common::AddGauge(f, "continuo_state_slots_total",
                   "Slots for recurrent states; 0 if the model has none.", model,
                   Read(e.state_slots_total));
  common::AddHistogram(f, "continuo_step_seconds", "Duration of a step.", model, e.step_seconds);
  common::AddCounter(f, "continuo_token_seconds_total",
                     "Time of steps that their tokens took, beyond what any step takes.", model,
                     Read(e.token_seconds));
  common::AddHistogram(f, "continuo_step_rows", "Rows of a step.", model, e.step_rows);
  common::AddCounter(f, "continuo_prompt_tokens_total", "Prompt tokens of started requests.", model,
                     Read(e.prompt_tokens));
  common::AddCounter(f, "continuo_generated_tokens_total", "Tokens generated.", model,
                     Read(e.generated_tokens));
  common::AddCounter(f, "continuo_preemptions_total",
                     "Times that a sequence gave its blocks back to be computed again.", model,
                     Read(e.preemptions));
  common::AddCounter(f, "continuo_prefix_cache_queried_tokens_total",
                     "Prompt tokens looked up in the prefix cache.", model,
                     Read(e.prefix_cache_queried_tokens));
  common::AddCounter(f, "continuo_prefix_cache_hit_tokens_total",
                     "Prompt tokens found in the prefix cache.", model,
                     Read(e.prefix_cache_hit_tokens));
  common::AddCounter(f, "continuo_draft_tokens_total", "Drafts that steps checked.", model,
                     Read(e.draft_tokens));
  common::AddCounter(f, "continuo_accepted_draft_tokens_total",
                     "Drafts that were right: tokens generated beside the one of a step.", model,
                     Read(e.accepted_draft_tokens));
  common::AddCounter(f, "continuo_constrained_samples_total",
                     "Samples whose token a constraint restricted.", model,
                     Read(e.constrained_samples));
  common::AddHistogram(f, "continuo_mask_seconds",
                       "Filling the token masks of a step that has any, while the device computes.",
                       model, e.mask_seconds);
  const text::GrammarCompiler::Counters grammars =
      serving == nullptr ? text::GrammarCompiler::Counters() : serving->model.grammars->counters();
  common::AddCounter(f, "continuo_grammar_compiles_total",
                     "Schemas, regular expressions and other grammars that were compiled.", model,
                     static_cast<double>(grammars.compiles));
  common::AddCounter(f, "continuo_grammar_refusals_total", "Of those, refused ones.", model,
                     static_cast<double>(grammars.refusals));
  common::AddCounter(f, "continuo_grammar_cache_hits_total",
                     "Grammars that had been compiled before.", model,
                     static_cast<double>(grammars.hits));
  common::AddCounter(f, "continuo_grammar_compile_seconds_total", "Time spent compiling grammars.",
                     model, absl::ToDoubleSeconds(grammars.compile_time));
  for (size_t code = 0; code < protocol::kStatusNames.size(); ++code) {
    const auto status = static_cast<absl::StatusCode>(code);
    common::MetricLabels labels = model;
    labels.emplace_back("code", std::string(protocol::StatusName(status)));
    common::AddCounter(f, "continuo_requests_total", "Generate calls that ended, by gRPC status.",
                       labels, static_cast<double>(requests.num_ended(status)));
  }
  common::AddHistogram(f, "continuo_queue_seconds", "From arrival to the first step.", model,
                       e.queue_seconds);
  common::AddHistogram(f, "continuo_time_to_first_token_seconds",
                       "From arrival to the first token.", model, e.time_to_first_token_seconds);
  common::AddHistogram(f, "continuo_inter_token_seconds", "Between tokens of a sequence.", model,
                       e.inter_token_seconds);
  common::AddHistogram(f, "continuo_request_seconds", "From arrival to the end.", model,
                       e.request_seconds);
  common::MetricLabels build = model;
  build.emplace_back("version", std::string(common::Version()));
  build.emplace_back("fingerprint", serving == nullptr ? "" : serving->model.fingerprint);
  common::AddGauge(f, "continuo_build_info", "1; the labels say what runs.", build, 1);
  common::AddCounter(f, "continuo_spans_dropped_total", "Spans that no collector took.", model,
                     spans == nullptr ? 0 : static_cast<double>(spans->num_dropped()));
}

// The same numbers under vLLM's names and labels.
void CollectVllm(const engine::EngineMetrics& e, const WorkerIdentity& identity,
                 const Serving* serving, common::MetricFamilies& f) {
  const common::MetricLabels labels = {{"model_name", identity.model_name}, {"engine", "0"}};
  common::AddGauge(f, "vllm:num_requests_running", "Sequences in the batch.", labels,
                   Read(e.running_requests));
  common::AddGauge(f, "vllm:num_requests_waiting", "Sequences that wait for the batch.", labels,
                   Read(e.waiting_requests));
  const double total = Read(e.kv_blocks_total);
  common::AddGauge(f, "vllm:kv_cache_usage_perc", "Share of the KV blocks in use; 1 is all.",
                   labels, total > 0 ? Read(e.kv_blocks_used) / total : 0);
  const engine::EngineLoad load =
      serving == nullptr ? engine::EngineLoad() : serving->engine->Load();
  common::MetricLabels config = labels;
  config.emplace_back("block_size", std::to_string(load.block_size));
  config.emplace_back("num_gpu_blocks", std::to_string(load.total_blocks));
  config.emplace_back("enable_prefix_caching", "True");
  common::AddGauge(f, "vllm:cache_config_info", "1; the labels say how the KV cache is set up.",
                   config, 1);
  common::AddHistogram(f, "vllm:time_to_first_token_seconds", "From arrival to the first token.",
                       labels, e.time_to_first_token_seconds);
  common::AddHistogram(f, "vllm:inter_token_latency_seconds", "Between tokens of a sequence.",
                       labels, e.inter_token_seconds);
  common::AddHistogram(f, "vllm:e2e_request_latency_seconds", "From arrival to the end.", labels,
                       e.request_seconds);
  common::AddHistogram(f, "vllm:request_queue_time_seconds", "From arrival to the first step.",
                       labels, e.queue_seconds);
  common::AddCounter(f, "vllm:prompt_tokens_total", "Prompt tokens of started requests.", labels,
                     Read(e.prompt_tokens));
  common::AddCounter(f, "vllm:generation_tokens_total", "Tokens generated.", labels,
                     Read(e.generated_tokens));
  common::AddCounter(f, "vllm:num_preemptions_total", "Preemptions.", labels, Read(e.preemptions));
  common::AddCounter(f, "vllm:prefix_cache_queries_total",
                     "Prompt tokens looked up in the prefix cache.", labels,
                     Read(e.prefix_cache_queried_tokens));
  common::AddCounter(f, "vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
                     labels, Read(e.prefix_cache_hit_tokens));
  common::AddCounter(f, "vllm:spec_decode_num_draft_tokens_total", "Drafts that steps checked.",
                     labels, Read(e.draft_tokens));
  common::AddCounter(f, "vllm:spec_decode_num_accepted_tokens_total", "Drafts that were right.",
                     labels, Read(e.accepted_draft_tokens));
}

}  // namespace

void CollectWorkerMetrics(const engine::EngineMetrics& engine, const RequestCounters& requests,
                          const WorkerIdentity& identity, const Serving* serving,
                          const common::SpanExporter* spans, const common::PeerCheck& peers,
                          common::MetricFamilies& families) {
  common::AddCounter(families, "continuo_refused_peers_total",
                     "Calls of those who are not of the fleet.", {{"model", identity.model_name}},
                     static_cast<double>(peers.num_refused()));
  CollectOwn(engine, requests, identity, serving, spans, families);
  CollectVllm(engine, identity, serving, families);
  common::AddProcessMetrics(families);
}

}  // namespace continuo::server
