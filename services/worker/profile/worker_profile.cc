// SPDX-License-Identifier: Apache-2.0
#include "services/worker/profile/worker_profile.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace continuo::profile {
namespace {

using Json = nlohmann::json;

// The ranges of a file: counts begin at 1, and times at 0.
constexpr int kMostSeconds = 1000;
constexpr int kMostBlocks = 1 << 26, kMostBlockSize = 1024;
constexpr int kMostTokens = 1 << 24, kMostRunning = 1 << 20;
constexpr int64_t kMostQueuedTokens = int64_t{1} << 40;

absl::Status BadMember(std::string_view name, std::string_view rule) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", std::string(name), "\" must be ", std::string(rule)));
}

// Reads members of one object, each at most once, and finds those that nobody has read.
class Members {
 public:
  // `prefix` stands before the names in errors.
  Members(const Json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {}

  absl::Status Seconds(const std::string& name, double* value) {
    const Json* const member = Take(name);
    if (member == nullptr) return absl::OkStatus();
    const double seconds = member->is_number() ? member->get<double>() : -1;
    if (!(seconds >= 0 && seconds <= kMostSeconds)) {
      return BadMember(prefix_ + name, absl::StrCat("a number from 0 to ", kMostSeconds));
    }
    *value = seconds;
    return absl::OkStatus();
  }
  template <typename Integer>
  absl::Status Count(const char* name, int64_t most, Integer* value) {
    const Json* const member = Take(name);
    if (member == nullptr) return absl::OkStatus();
    if (!member->is_number_unsigned() || member->get<uint64_t>() < 1 ||
        member->get<uint64_t>() > static_cast<uint64_t>(most)) {
      return BadMember(prefix_ + name, absl::StrCat("a whole number from 1 to ", most));
    }
    *value = static_cast<Integer>(member->get<uint64_t>());
    return absl::OkStatus();
  }
  absl::Status Text(const char* name, std::string* value) {
    const Json* const member = Take(name);
    if (member == nullptr) return absl::OkStatus();
    if (!member->is_string()) return BadMember(prefix_ + name, "a string");
    *value = member->get<std::string>();
    return absl::OkStatus();
  }
  absl::Status Switch(const char* name, bool* value) {
    const Json* const member = Take(name);
    if (member == nullptr) return absl::OkStatus();
    if (!member->is_boolean()) return BadMember(prefix_ + name, "true or false");
    *value = member->get<bool>();
    return absl::OkStatus();
  }
  // Null if the object has no such member.
  const Json* Take(const std::string& name) {
    const auto at = object_.find(name);
    if (at == object_.end()) return nullptr;
    taken_.push_back(name);
    return &*at;
  }
  absl::Status CheckAllTaken() const {
    for (const auto& [name, value] : object_.items()) {
      if (std::ranges::find(taken_, name) == taken_.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("\"", prefix_, name, "\" is no known member"));
      }
    }
    return absl::OkStatus();
  }

 private:
  const Json& object_;
  const std::string prefix_;
  std::vector<std::string> taken_;
};

std::string NameOfKnee(size_t knee) {
  return absl::StrCat("per_sample_over_", StepTime::kSampleKnees[knee]);
}

}  // namespace

absl::Duration StepTime::Of(const engine::StepLoad& load) const {
  double seconds = fixed + per_token * static_cast<double>(load.tokens) +
                   per_attended_token * static_cast<double>(load.attention) +
                   per_decode_attended_token * static_cast<double>(load.decode_attention) +
                   per_sample * static_cast<double>(load.samples);
  for (size_t i = 0; i < kSampleKnees.size(); ++i) {
    const int64_t over = std::max<int64_t>(0, load.samples - kSampleKnees[i]);
    seconds += per_sample_over[i] * static_cast<double>(over);
  }
  return absl::Seconds(seconds);
}

engine::StepLoad LoadOf(const model::StepPlan& plan) {
  engine::StepLoad load;
  for (int s = 0; s < plan.num_seqs(); ++s) {
    const int64_t count = plan.query_begin[s + 1] - plan.query_begin[s];
    load = load.WithSequence(plan.kv_len[s] - count, count, 0);
  }
  load.samples = plan.num_samples();
  return load;
}

WorkerProfile ExampleProfile() {
  WorkerProfile profile;
  profile.name = "example: 8B parameters in bf16 on one H100";
  profile.step = {.fixed = 6e-3, .per_token = 3e-5, .per_attended_token = 5e-9, .per_sample = 2e-5};
  profile.engine.num_blocks = 28000;
  profile.engine.block_size = 16;
  profile.is_asynchronous = true;
  return profile;
}

absl::StatusOr<WorkerProfile> ParseProfile(std::string_view json) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("the file is no JSON object");
  WorkerProfile profile;
  Members members(object, "");
  RETURN_IF_ERROR(members.Text("name", &profile.name));
  const Json* const step = members.Take("step_seconds");
  if (step == nullptr || !step->is_object()) return BadMember("step_seconds", "an object");
  Members terms(*step, "step_seconds.");
  RETURN_IF_ERROR(terms.Seconds("fixed", &profile.step.fixed));
  RETURN_IF_ERROR(terms.Seconds("per_token", &profile.step.per_token));
  RETURN_IF_ERROR(terms.Seconds("per_attended_token", &profile.step.per_attended_token));
  RETURN_IF_ERROR(
      terms.Seconds("per_decode_attended_token", &profile.step.per_decode_attended_token));
  RETURN_IF_ERROR(terms.Seconds("per_sample", &profile.step.per_sample));
  for (size_t i = 0; i < StepTime::kSampleKnees.size(); ++i) {
    RETURN_IF_ERROR(terms.Seconds(NameOfKnee(i), &profile.step.per_sample_over[i]));
  }
  RETURN_IF_ERROR(terms.CheckAllTaken());
  if (profile.step.fixed + profile.step.per_token <= 0) {
    return absl::InvalidArgumentError(
        "\"step_seconds.fixed\" and \"step_seconds.per_token\" must not both be 0");
  }
  engine::EngineOptions& engine = profile.engine;
  RETURN_IF_ERROR(members.Count("kv_blocks", kMostBlocks, &engine.num_blocks));
  if (engine.num_blocks == 0)
    return BadMember("kv_blocks", absl::StrCat("a whole number from 1 to ", kMostBlocks));
  RETURN_IF_ERROR(members.Count("block_size", kMostBlockSize, &engine.block_size));
  RETURN_IF_ERROR(members.Count("max_batch_tokens", kMostTokens, &engine.max_batch_tokens));
  RETURN_IF_ERROR(members.Count("max_prefill_chunk", kMostTokens, &engine.max_prefill_chunk));
  RETURN_IF_ERROR(members.Count("max_running", kMostRunning, &engine.max_running));
  RETURN_IF_ERROR(members.Count("max_queued_tokens", kMostQueuedTokens, &engine.max_queued_tokens));
  double target = absl::ToDoubleSeconds(engine.target_step);
  RETURN_IF_ERROR(members.Seconds("target_step_seconds", &target));
  engine.target_step = absl::Seconds(target);
  RETURN_IF_ERROR(members.Count("max_context_tokens", kMostTokens, &profile.max_context_tokens));
  RETURN_IF_ERROR(members.Switch("asynchronous", &profile.is_asynchronous));
  RETURN_IF_ERROR(members.CheckAllTaken());
  return profile;
}

std::string FormatProfile(const WorkerProfile& profile) {
  const engine::EngineOptions& engine = profile.engine;
  const auto seconds = [](double value) { return std::clamp<double>(value, 0, kMostSeconds); };
  const auto count = [](auto value, decltype(value) most) {
    return std::clamp(value, decltype(value){1}, most);
  };
  nlohmann::ordered_json json = {
      {"name", profile.name},
      {"step_seconds",
       {{"fixed", seconds(profile.step.fixed)},
        {"per_token", seconds(profile.step.per_token)},
        {"per_attended_token", seconds(profile.step.per_attended_token)},
        {"per_decode_attended_token", seconds(profile.step.per_decode_attended_token)},
        {"per_sample", seconds(profile.step.per_sample)}}},
      {"kv_blocks", count(engine.num_blocks, kMostBlocks)},
      {"block_size", count(engine.block_size, kMostBlockSize)},
      {"max_batch_tokens", count(engine.max_batch_tokens, kMostTokens)},
      {"max_prefill_chunk", count(engine.max_prefill_chunk, kMostTokens)},
      {"max_running", count(engine.max_running, kMostRunning)},
      {"max_queued_tokens", count(engine.max_queued_tokens, kMostQueuedTokens)},
      {"target_step_seconds", seconds(absl::ToDoubleSeconds(engine.target_step))},
      {"max_context_tokens", count(profile.max_context_tokens, kMostTokens)},
      {"asynchronous", profile.is_asynchronous}};
  for (size_t i = 0; i < StepTime::kSampleKnees.size(); ++i) {
    json["step_seconds"][NameOfKnee(i)] = seconds(profile.step.per_sample_over[i]);
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace continuo::profile
