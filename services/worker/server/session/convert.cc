// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/convert.h"

#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"
#include "services/protocol/proto_time.h"
#include "services/protocol/validate_request.h"
#include "services/worker/server/session/constrain.h"
#include "services/worker/server/session/prompt.h"
#include "services/worker/server/session/validate.h"

namespace continuo::server {
namespace {

// Cuts a time to the precision of the wire, so that a continuation gets the same time back.
absl::Time ToNanoseconds(absl::Time t) { return absl::FromUnixNanos(absl::ToUnixNanos(t)); }

// Accepted says what the server chose, now or for an earlier call (exactness: relay-edits-nothing,
// same-fingerprint).
absl::StatusOr<v1::Accepted> Accept(const v1::GenerateRequest& request, const CallInfo& call,
                                    const ServedModel& model) {
  const v1::GenerateResponse& response = request.continuation().received();
  const v1::Accepted& received = response.accepted();
  const bool resumed = response.has_accepted();
  if (!resumed && (response.deltas_size() > 0 || response.prompt_logprobs_size() > 0 ||
                   response.prompt_tokens_size() > 0)) {
    return protocol::FieldError("continuation.received.accepted", "is missing");
  }
  v1::Accepted accepted;
  ASSIGN_OR_RETURN(*accepted.mutable_request_id(), ChooseRequestId(request, call));
  if (request.model().empty()) RETURN_IF_ERROR(ValidateModelName(received.model(), model));
  accepted.set_model(model.name);
  if (request.sampling().has_seed()) {
    accepted.set_seed(request.sampling().seed());
  } else {
    accepted.set_seed(resumed ? received.seed() : call.random() >> 11);
  }
  accepted.set_fingerprint(model.fingerprint);
  accepted.set_worker(model.worker);
  accepted.set_tokenizer_fingerprint(model.tokenizer_fingerprint);
  absl::Time reference = ToNanoseconds(call.reference_time.value_or(call.now));
  if (received.has_reference_time()) {
    ASSIGN_OR_RETURN(reference,
                     protocol::ReadTimestamp("continuation.received.accepted.reference_time",
                                             received.reference_time()));
  }
  *accepted.mutable_reference_time() = protocol::ToProto(reference);
  if (resumed) {
    if (received.tokenizer_fingerprint() != model.tokenizer_fingerprint) {
      return protocol::WithReason(
          absl::FailedPreconditionError(
              "the generation began with another tokenizer; it cannot go on here"),
          protocol::kReasonModelChanged);
    }
    constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
    accepted.set_migrations(received.migrations() == kMost ? kMost : received.migrations() + 1);
    accepted.set_inexact(received.inexact() || received.fingerprint() != model.fingerprint ||
                         model.fingerprint.empty());
  }
  if (request.exact_only() && (accepted.inexact() || model.fingerprint.empty())) {
    return protocol::WithReason(
        absl::UnavailableError("exact_only: this worker could only go on inexactly"),
        protocol::kReasonNoWorker);
  }
  return accepted;
}

template <typename T>
T OrDefault(bool is_set, T value, const std::optional<T>& model_default, T otherwise) {
  return is_set ? value : model_default.value_or(otherwise);
}

model::SamplingParams ConvertSampling(const v1::GenerateRequest& request, uint64_t seed,
                                      const SamplingDefaults& d) {
  const v1::Sampling& s = request.sampling();
  model::SamplingParams p;
  p.temperature = OrDefault(s.has_temperature(), s.temperature(), d.temperature, 1.0f);
  p.top_k = static_cast<int32_t>(
      std::min<uint32_t>(OrDefault<uint32_t>(s.has_top_k(), s.top_k(), d.top_k, 0),
                         std::numeric_limits<int32_t>::max()));
  p.top_p = OrDefault(s.has_top_p(), s.top_p(), d.top_p, 1.0f);
  if (p.top_p == 0) {  // the most likely token, which is what a temperature of 0 gives
    p.temperature = 0;
    p.top_p = 1;
  }
  p.min_p = OrDefault(s.has_min_p(), s.min_p(), d.min_p, 0.0f);
  p.repetition_penalty =
      OrDefault(s.has_repetition_penalty(), s.repetition_penalty(), d.repetition_penalty, 1.0f);
  p.presence_penalty = s.presence_penalty();
  p.frequency_penalty = s.frequency_penalty();
  p.seed = seed;
  const v1::Output& output = request.output();
  p.num_logprobs = output.has_logprobs() ? static_cast<int32_t>(output.logprobs()) : -1;
  return p;
}

std::vector<int32_t> Ascending(std::vector<int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// Cuts the prompt to what the request says.
void Truncate(const v1::GenerateRequest& request, int max_context_tokens,
              std::vector<int32_t>* prompt) {
  if (!request.has_truncation()) return;
  const v1::Truncation& truncation = request.truncation();
  size_t most = truncation.max_tokens();
  if (most == 0) {
    const v1::Stopping& stopping = request.stopping();
    const int64_t answer = stopping.has_max_tokens() ? stopping.max_tokens() : 1;
    most = static_cast<size_t>(std::max<int64_t>(max_context_tokens - answer, 1));
  }
  if (prompt->size() <= most) return;
  if (!truncation.keep_first()) {
    prompt->erase(prompt->begin(), prompt->end() - static_cast<ptrdiff_t>(most));
  }
  prompt->resize(most);
}

// Sets which tokens may be sampled.
absl::Status ConvertBars(const v1::Sampling& s, const ServedModel& model, engine::Request* r) {
  for (int i = 0; i < s.bad_words_size(); ++i) {
    const std::string& word = s.bad_words(i);
    for (const bool has_space : {false, true}) {
      if (has_space && word[0] == ' ') continue;
      ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                       model.text->Encode(has_space ? " " + word : word, /*add_special=*/false));
      if (ids.empty()) {
        return protocol::FieldError(absl::StrCat("sampling.bad_words[", i, "]"),
                                    "encodes to no token");
      }
      r->barred.push_back(std::move(ids));
    }
  }
  std::ranges::sort(r->barred);
  r->barred.erase(std::unique(r->barred.begin(), r->barred.end()), r->barred.end());
  if (s.allowed_token_ids().empty()) return absl::OkStatus();
  r->allowed_mask.assign(static_cast<size_t>(model.vocab_size + 31) / 32, 0);
  for (const uint32_t id : s.allowed_token_ids()) {
    r->allowed_mask[id / 32] |= uint32_t{1} << (id % 32);
  }
  const auto ends = [r](uint32_t id) {
    return std::ranges::binary_search(r->stop_ids, static_cast<int32_t>(id));
  };
  if (r->min_tokens == 0 || !std::ranges::all_of(s.allowed_token_ids(), ends)) {
    return absl::OkStatus();
  }
  return protocol::FieldError("sampling.allowed_token_ids",
                              absl::StrCat("all of them end the answer, which min_tokens forbids "
                                           "before ",
                                           r->min_tokens, " tokens"));
}

absl::StatusOr<StopRules> ConvertStopping(const v1::Stopping& stopping, size_t prompt_tokens,
                                          const ServedModel& model) {
  StopRules rules;
  rules.strings.assign(stopping.strings().begin(), stopping.strings().end());
  rules.include_stop = stopping.include_stop();
  if (!stopping.ignore_eos()) rules.eos_ids = model.eos_ids;
  rules.stop_ids = Ascending({stopping.token_ids().begin(), stopping.token_ids().end()});
  const auto left = static_cast<uint32_t>(model.max_context_tokens - prompt_tokens);
  if (!stopping.has_max_tokens() && stopping.min_tokens() > left) {
    return protocol::FieldError("stopping.min_tokens",
                                absl::StrCat(stopping.min_tokens(), " is above the ", left,
                                             " tokens that the context leaves"));
  }
  rules.max_tokens =
      static_cast<int>(stopping.has_max_tokens() ? std::min(stopping.max_tokens(), left) : left);
  rules.min_tokens = static_cast<int>(
      std::min<uint32_t>(stopping.min_tokens(), static_cast<uint32_t>(rules.max_tokens)));
  return rules;
}

// How the answers to a conversation are divided. Prompts that the client wrote itself have text.
AnswerFormat FormatOf(const v1::GenerateRequest& request, const EncodedPrompt& prompt,
                      const std::string& request_id, const ServedModel& model) {
  using Channel = text::ResponseField::Channel;
  AnswerFormat format;
  if (!request.has_conversation()) return format;
  const v1::Conversation& conversation = request.conversation();
  const text::ResponseTemplate& answers = model.text->response_format().response_template;
  format.calls = conversation.tools_size() > 0 &&
                 conversation.tool_choice().mode() != v1::ToolChoice::MODE_NONE &&
                 answers.has(Channel::kCalls);
  format.single_call = format.calls && conversation.tool_choice().single_call();
  format.prompt_end = prompt.rendered.substr(prompt.template_end);
  // A constrained answer is text behind its thoughts, whatever it looks like.
  format.thoughts_first = request.has_constraint() && !format.calls;
  if (format.thoughts_first) {
    if (ThoughtsOf(request, format.prompt_end, model) == Thoughts::kNone &&
        !HasTextHeader(request, model)) {
      return format;
    }
  } else if (!format.calls && !answers.has(Channel::kReasoning)) {
    return format;
  }
  format.response_template = &answers;
  for (const v1::Tool& tool : conversation.tools()) {
    format.types.Add(tool.name(), tool.parameters());
  }
  format.request_id = request_id;
  return format;
}

engine::Request ConvertRequest(const v1::GenerateRequest& request, const CallInfo& call,
                               const v1::Accepted& accepted, const StopRules& rules,
                               const ServedModel& model) {
  engine::Request r;
  r.label = accepted.request_id();
  r.tenant = call.tenant;
  const v1::Sampling& s = request.sampling();
  r.num_sequences = s.has_num_sequences() ? static_cast<int>(s.num_sequences()) : 1;
  r.sampling = ConvertSampling(request, accepted.seed(), model.defaults);
  for (const auto& [id, bias] : s.logit_bias()) {
    r.biases.push_back({static_cast<int32_t>(id), bias});
  }
  std::sort(r.biases.begin(), r.biases.end(),
            [](const kernels::LogitBias& a, const kernels::LogitBias& b) {
              return a.token_id < b.token_id;
            });
  r.stop_ids = rules.eos_ids;
  r.stop_ids.insert(r.stop_ids.end(), rules.stop_ids.begin(), rules.stop_ids.end());
  r.stop_ids = Ascending(std::move(r.stop_ids));
  r.max_tokens = rules.max_tokens;
  r.min_tokens = rules.min_tokens;
  const v1::Output& output = request.output();
  if (output.has_prompt_logprobs()) {
    r.num_prompt_logprobs = static_cast<int>(output.prompt_logprobs());
  }
  r.adapter = model.adapter;
  r.adapter_lease = model.adapter_lease;
  r.priority = request.priority();
  r.is_migration = call.is_migration && request.has_continuation();
  r.deadline = call.deadline;
  r.cache_bypass = request.cache().bypass();
  r.want_progress = output.progress();
  return r;
}

}  // namespace

SaltKey::SaltKey(const std::function<uint64_t()>& random) {
  for (uint64_t& word : secret_) word = random();
}

std::array<uint64_t, 2> SaltKey::Combine(std::string_view tenant, std::string_view salt,
                                         std::string_view adapter_digest) const {
  // The lengths keep ("a", "bc") and ("ab", "c") apart.
  const std::string text =
      absl::StrCat(tenant.size(), ":", std::string(tenant), adapter_digest.size(), ":",
                   std::string(adapter_digest), std::string(salt));
  const XXH128_hash_t hash =
      XXH3_128bits_withSecret(text.data(), text.size(), secret_.data(), sizeof(secret_));
  return {hash.low64, hash.high64};
}

absl::StatusOr<std::string> ChooseRequestId(const v1::GenerateRequest& request,
                                            const CallInfo& call) {
  const v1::Accepted& received = request.continuation().received().accepted();
  if (!call.request_id.empty())
    RETURN_IF_ERROR(protocol::ValidateId("x-request-id", call.request_id));
  if (!request.request_id().empty()) return request.request_id();
  if (!received.request_id().empty()) {
    RETURN_IF_ERROR(
        protocol::ValidateId("continuation.received.accepted.request_id", received.request_id()));
    return received.request_id();
  }
  if (!call.request_id.empty()) return call.request_id;
  const uint64_t high = call.random();
  return absl::StrFormat("%016x%016x", high, call.random());
}

absl::StatusOr<Generation> PrepareGeneration(const v1::GenerateRequest& request,
                                             const CallInfo& call, const ServedModel& model,
                                             const SaltKey& salt_key) {
  RETURN_IF_ERROR(ValidateGenerate(request, model));
  Generation g;
  g.start = call.now;
  ASSIGN_OR_RETURN(g.accepted, Accept(request, call, model));
  const v1::GenerateResponse& received = request.continuation().received();
  const bool resumed = received.has_accepted();
  if (received.has_summary()) {
    g.complete = true;
    return g;
  }
  const absl::Time reference = protocol::FromProto(g.accepted.reference_time());
  ASSIGN_OR_RETURN(EncodedPrompt prompt, EncodePrompt(request, reference, model));
  Truncate(request, model.max_context_tokens, &prompt.tokens);
  RETURN_IF_ERROR(ValidatePromptTokens(prompt.field, prompt.tokens, model));
  ASSIGN_OR_RETURN(StopRules rules,
                   ConvertStopping(request.stopping(), prompt.tokens.size(), model));
  RETURN_IF_ERROR(ValidateCollect(request, prompt.tokens.size(), rules.max_tokens, model));
  ASSIGN_OR_RETURN(const AnswerGrammar grammar, CompileConstraint(request, model));
  rules.constrained = grammar.grammar != nullptr;
  g.rules = std::make_unique<StopRules>(std::move(rules));
  g.format =
      std::make_unique<AnswerFormat>(FormatOf(request, prompt, g.accepted.request_id(), model));
  g.collect = request.output().collect();
  g.want_prompt_tokens = request.output().prompt_tokens();

  g.request = ConvertRequest(request, call, g.accepted, *g.rules, model);
  RETURN_IF_ERROR(ConvertBars(request.sampling(), model, &g.request));
  g.request.cache_salt =
      salt_key.Combine(call.tenant, request.cache().salt(), model.adapter_digest);
  if (request.stopping().has_time_limit()) {
    g.request.time_limit = reference + protocol::FromProto(request.stopping().time_limit());
  }
  ASSIGN_OR_RETURN(const std::vector<std::shared_ptr<AnswerConstraint>> constraints,
                   MakeConstraints(grammar, ThoughtsOf(request, g.format->prompt_end, model),
                                   g.request.num_sequences, model));
  g.request.constraints.assign(constraints.begin(), constraints.end());
  if (resumed) {
    // A stream that once went on inexactly keeps ids of another worker for good.
    const bool exact = !g.accepted.inexact();
    g.next_sequence = received.sequence() + 1;
    ASSIGN_OR_RETURN(g.replay,
                     ReplayReceived(received, g.request.num_sequences, prompt.tokens.size(), exact,
                                    model, *g.rules, g.format.get(), constraints));
    g.request.received = g.replay.received;
    g.request.prompt_logprobs_received = g.replay.num_prompt_logprobs;
  } else {
    g.replay = BeginAnswer(g.request.num_sequences, model, *g.rules, g.format.get());
  }
  g.request.prompt = std::move(prompt.tokens);
  return g;
}

v1::TokenLogprob ToProto(int32_t token, const model::TokenScore& score, const ServedModel& model) {
  v1::TokenLogprob proto;
  proto.set_token_id(static_cast<uint32_t>(token));
  proto.set_logprob(score.logprob);
  SetToken(token, model, &proto);
  for (const model::TokenAlternative& alternative : score.alternatives) {
    v1::TokenLogprob::Alternative& added = *proto.add_alternatives();
    added.set_token_id(static_cast<uint32_t>(alternative.token_id));
    added.set_logprob(alternative.logprob);
    SetToken(alternative.token_id, model, &added);
  }
  return proto;
}

v1::Model ToProto(const ServedModel& model) {
  v1::Model proto;
  proto.set_name(model.name);
  proto.set_architecture(model.architecture);
  proto.set_max_context_tokens(static_cast<uint32_t>(model.max_context_tokens));
  proto.set_vocabulary_size(static_cast<uint32_t>(model.vocab_size));
  proto.set_num_parameters(model.num_parameters);
  proto.set_weight_format(model.weight_format);
  if (!model.fingerprint.empty()) proto.add_fingerprints(model.fingerprint);
  proto.set_parent(model.parent);
  proto.set_num_workers(1);
  if (model.embedding != nullptr) {
    proto.add_capabilities(v1::CAPABILITY_EMBED);
    proto.set_embedding_dimensions(static_cast<uint32_t>(model.embedding->dimensions()));
    for (const embedding::Prompt& prompt : model.embedding->prompts()) {
      proto.add_prompt_names(prompt.name);
    }
    return proto;
  }
  if (model.score != nullptr) {
    proto.add_capabilities(v1::CAPABILITY_SCORE);
    return proto;
  }
  proto.add_capabilities(v1::CAPABILITY_GENERATE);
  if (model.text->has_chat_template()) {
    proto.add_capabilities(v1::CAPABILITY_CHAT);
    const text::ResponseTemplate& answers = model.text->response_format().response_template;
    if (answers.has(text::ResponseField::Channel::kCalls)) {
      proto.add_capabilities(v1::CAPABILITY_TOOLS);
    }
    if (model.call_grammar_status.ok()) proto.add_capabilities(v1::CAPABILITY_REQUIRED_CALLS);
    if (answers.has(text::ResponseField::Channel::kReasoning)) {
      proto.add_capabilities(v1::CAPABILITY_REASONING);
    }
    if (!model.parse_special_in_content) {
      proto.add_capabilities(v1::CAPABILITY_CONTENT_IS_TEXT);
    }
    proto.set_response_format(model.text->response_format().name);
  }
  proto.add_capabilities(v1::CAPABILITY_CONSTRAINTS);
  return proto;
}

}  // namespace continuo::server
