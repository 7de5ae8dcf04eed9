// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/vllm/vllm_request.h"

#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"

namespace continuo::server {
namespace {

namespace engine_v1 = vllm::grpc::engine;

// Fields of continuo.v1, and where they come from. The first that begins a field's path counts.
constexpr std::pair<std::string_view, std::string_view> kFields[] = {
    {"token_ids.ids", "tokenized.input_ids"},
    {"sampling.num_sequences", "sampling_params.n"},
    {"sampling", "sampling_params"},
    {"stopping.strings", "sampling_params.stop"},
    {"stopping.token_ids", "sampling_params.stop_token_ids"},
    {"stopping", "sampling_params"},
    {"constraint.lark", "sampling_params.grammar"},
    {"constraint", "sampling_params"},
    {"output", "sampling_params"},
    {"truncation", "sampling_params.truncate_prompt_tokens"},
    {"inputs[0].token_ids.ids", "tokenized.input_ids"},
    {"inputs[0]", "tokenized"},
    {"inputs", "tokenized"},
};

// Log-probabilities come in one message with the first chunk, so the prompt that has them is
// bounded more tightly than in continuo.v1: so many numbers are about 3 MiB.
constexpr uint64_t kMaxPromptLogprobs = 1 << 18;

absl::Status Refused(std::string_view field, std::string_view why) {
  return protocol::FieldError(field, why);
}

absl::Status CheckMedia(const engine_v1::GenerateRequest& request) {
  constexpr std::string_view kText = "models here read text";
  constexpr std::string_view kMoved = "keys and values are not moved between workers";
  if (!request.mm_inputs().empty()) return Refused("mm_inputs", kText);
  if (request.extra_mm_inputs_size() > 0) return Refused("extra_mm_inputs", kText);
  if (!request.media_refs().empty()) return Refused("media_refs", kText);
  if (!request.kv_transfer_params().empty()) return Refused("kv_transfer_params", kMoved);
  if (request.has_kv_transfer_params_json()) return Refused("kv_transfer_params_json", kMoved);
  if (request.data_parallel_rank() != 0) {
    return Refused("data_parallel_rank", "there is rank 0 alone");
  }
  return absl::OkStatus();
}

absl::Status ReadConstraint(const engine_v1::SamplingParams& p, v1::Constraint* constraint) {
  switch (p.constraint_case()) {
    case engine_v1::SamplingParams::kJsonSchema:
      constraint->set_json_schema(p.json_schema());
      break;
    case engine_v1::SamplingParams::kRegex:
      constraint->set_regex(p.regex());
      break;
    case engine_v1::SamplingParams::kGrammar:
      constraint->set_lark(p.grammar());
      break;
    case engine_v1::SamplingParams::kStructuralTag:
      return Refused("sampling_params.structural_tag",
                     "is not known here; json_schema, regex, grammar and choice are");
    case engine_v1::SamplingParams::kJsonObject:
      constraint->set_json_object(p.json_object());
      break;
    case engine_v1::SamplingParams::kChoice:
      for (const std::string& choice : p.choice().choices()) {
        constraint->mutable_choice()->add_options(choice);
      }
      constraint->mutable_choice();
      break;
    case engine_v1::SamplingParams::CONSTRAINT_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

// A number of alternatives. -1 asks for the whole vocabulary.
absl::StatusOr<uint32_t> ReadAlternatives(std::string_view field, int32_t number) {
  if (number < 0) return Refused(field, absl::StrCat(number, " is below 0"));
  return static_cast<uint32_t>(number);
}

absl::Status ReadSampling(const engine_v1::SamplingParams& p, v1::GenerateRequest* request) {
  v1::Sampling& sampling = *request->mutable_sampling();
  sampling.set_temperature(p.has_temperature() ? p.temperature() : 1);
  sampling.set_top_p(p.top_p() == 0 ? 1 : p.top_p());
  sampling.set_top_k(p.top_k());
  sampling.set_min_p(p.min_p());
  sampling.set_frequency_penalty(p.frequency_penalty());
  sampling.set_presence_penalty(p.presence_penalty());
  sampling.set_repetition_penalty(p.repetition_penalty() == 0 ? 1 : p.repetition_penalty());
  sampling.set_num_sequences(p.n() == 0 ? 1 : p.n());
  if (p.has_seed()) sampling.set_seed(static_cast<uint64_t>(int64_t{p.seed()}));
  for (const auto& [id, bias] : p.logit_bias()) {
    if (id < 0)
      return Refused("sampling_params.logit_bias", absl::StrCat("id ", id, " is below 0"));
    (*sampling.mutable_logit_bias())[static_cast<uint32_t>(id)] = bias;
  }
  v1::Stopping& stopping = *request->mutable_stopping();
  if (p.has_max_tokens()) stopping.set_max_tokens(p.max_tokens());
  if (p.min_tokens() > 0) stopping.set_min_tokens(p.min_tokens());
  *stopping.mutable_strings() = p.stop();
  *stopping.mutable_token_ids() = p.stop_token_ids();
  stopping.set_ignore_eos(p.ignore_eos());
  stopping.set_include_stop(p.include_stop_str_in_output());
  if (p.constraint_case() != engine_v1::SamplingParams::CONSTRAINT_NOT_SET) {
    RETURN_IF_ERROR(ReadConstraint(p, request->mutable_constraint()));
  }
  return absl::OkStatus();
}

absl::Status ReadLogprobs(const engine_v1::GenerateRequest& all, v1::Output* output) {
  const engine_v1::SamplingParams& p = all.sampling_params();
  if (p.has_logprobs()) {
    ASSIGN_OR_RETURN(const uint32_t number,
                     ReadAlternatives("sampling_params.logprobs", p.logprobs()));
    output->set_logprobs(number);
  }
  if (!p.has_prompt_logprobs()) return absl::OkStatus();
  constexpr std::string_view kField = "sampling_params.prompt_logprobs";
  ASSIGN_OR_RETURN(const uint32_t number, ReadAlternatives(kField, p.prompt_logprobs()));
  // A text has no more tokens than bytes, but for those that the tokenizer adds.
  const uint64_t length =
      all.has_text() ? all.text().size() : static_cast<uint64_t>(all.tokenized().input_ids_size());
  if (length * (uint64_t{number} + 1) > kMaxPromptLogprobs) {
    return Refused(kField, absl::StrCat("the prompt of ", length, " and ", number,
                                        " alternatives are over ", kMaxPromptLogprobs, " numbers"));
  }
  output->set_prompt_logprobs(number);
  // The first token has an id and no log-probability.
  output->set_prompt_tokens(true);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::GenerateRequest> ReadVllmGenerate(const engine_v1::GenerateRequest& all) {
  RETURN_IF_ERROR(CheckMedia(all));
  const engine_v1::SamplingParams& p = all.sampling_params();
  v1::GenerateRequest request;
  request.set_request_id(all.request_id());
  if (all.has_text()) {
    request.set_text(all.text());
  } else {
    *request.mutable_token_ids()->mutable_ids() = all.tokenized().input_ids();
  }
  RETURN_IF_ERROR(ReadSampling(p, &request));
  RETURN_IF_ERROR(ReadLogprobs(all, request.mutable_output()));
  if (p.has_truncate_prompt_tokens()) {
    if (p.truncate_prompt_tokens() < -1 || p.truncate_prompt_tokens() == 0) {
      return Refused("sampling_params.truncate_prompt_tokens",
                     absl::StrCat(p.truncate_prompt_tokens(), " is neither -1 nor above 0"));
    }
    request.mutable_truncation()->set_max_tokens(
        p.truncate_prompt_tokens() == -1 ? 0 : static_cast<uint32_t>(p.truncate_prompt_tokens()));
  }
  // It tells how much of the prompt was cached before the first token.
  if (all.stream()) {
    request.mutable_output()->set_progress(true);
  } else {
    request.mutable_output()->set_collect(true);
  }
  return request;
}

absl::StatusOr<v1::EmbedRequest> ReadVllmEmbed(const engine_v1::EmbedRequest& all) {
  v1::EmbedRequest request;
  request.set_request_id(all.request_id());
  *request.add_inputs()->mutable_token_ids()->mutable_ids() = all.tokenized().input_ids();
  return request;
}

absl::Status WithVllmField(const absl::Status& status) {
  const std::string field = protocol::FieldOf(status);
  for (const auto& [ours, theirs] : kFields) {
    if (!field.starts_with(ours)) continue;
    const std::string_view rest = std::string_view(field).substr(ours.size());
    if (!rest.empty() && rest[0] != '.' && rest[0] != '[') continue;
    // FieldError puts the field in front.
    std::string_view message(status.message().data(), status.message().size());
    if (message.starts_with(field)) message.remove_prefix(field.size());
    if (message.starts_with(": ")) message.remove_prefix(2);
    return protocol::FieldError(absl::StrCat(std::string(theirs), std::string(rest)), message);
  }
  return status;
}

}  // namespace continuo::server
