// SPDX-License-Identifier: Apache-2.0
// ParseRopes: what fields say of rotary embeddings, for each kind of layer.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/math/exact_math.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/model/description/family.h"
#include "services/worker/model/description/known_fields.h"

namespace continuo::model {
namespace {

constexpr char kFull[] = "full_attention", kSliding[] = "sliding_attention";
// Fields that other types read, which this one's files may have.
constexpr char kOthers[] =
    "factor original_max_position_embeddings max_position_embeddings finetuned alpha beta_fast "
    "beta_slow mscale mscale_all_dim low_freq_factor high_freq_factor attention_factor truncate "
    "rope_theta partial_rotary_factor type rope_type mrope_section mrope_interleaved";

// Reads a list of one divisor per frequency.
std::vector<double> ParseFactors(JsonObject& json, std::string_view field, int rotary_dim) {
  const nlohmann::json& list = json.Raw(field);
  const size_t count = static_cast<size_t>(rotary_dim / 2);
  std::vector<double> factors;
  if (list.is_array() && list.size() == count) {
    for (const nlohmann::json& factor : list) {
      if (factor.is_number()) factors.push_back(factor.get<double>());
    }
  }
  const bool fits =
      factors.size() == count &&
      std::all_of(factors.begin(), factors.end(), [](double f) { return f >= 1 && f <= 1e6; });
  if (!fits) {
    json.Fail(field, absl::StrCat("it must be a list of ", count, " numbers from 1 to 1e6"));
    factors.assign(count, 1.0);
  }
  return factors;
}

// Reads Hugging Face's "longrope", of Phi-3. `context` is the file's, scaling included.
void ParseLongRope(JsonObject& json, JsonObject& parameters, int64_t context, int rotary_dim,
                   RopeConfig& rope) {
  rope.type = RopeConfig::Type::kLong;
  const bool at_top = json.Has("original_max_position_embeddings");
  rope.original_context =
      (at_top ? json : parameters)
          .Int("original_max_position_embeddings", 2, kMaxContextLength, context);
  rope.short_factors = ParseFactors(parameters, "short_factor", rotary_dim);
  rope.long_factors = ParseFactors(parameters, "long_factor", rotary_dim);
  double factor = parameters.Number("factor", 1e-3, 1e6, 1);
  if (at_top) {
    factor = static_cast<double>(context) / static_cast<double>(rope.original_context);
  }
  // The LongRoPE paper's factor: it compensates for attention that a long context spreads.
  double attention = 1;
  if (factor > 1) {
    attention = std::sqrt(1 + kernels::ExactLog(factor) /
                                  kernels::ExactLog(static_cast<double>(rope.original_context)));
  }
  rope.attention_factor = parameters.Number("attention_factor", 1e-3, 1e3, attention);
}

// The growth of attention by which YaRN makes up for a context that is `scale` times as long.
double YarnScale(double scale, double multiplier) {
  return scale <= 1 ? 1.0 : 0.1 * multiplier * kernels::ExactLog(scale) + 1.0;
}

// Reads "yarn". `context` is the file's.
void ParseYarn(JsonObject& json, JsonObject& parameters, int64_t context, ModelConfig& config,
               RopeConfig& rope) {
  rope.type = RopeConfig::Type::kYarn;
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  JsonObject& from = parameters.Has(kOriginal) ? parameters : json;
  rope.original_context = from.Int(kOriginal, 2, kMaxContextLength, context);
  rope.factor = parameters.Number(
      "factor", 1, 1e6,
      std::max(1.0, static_cast<double>(context) / static_cast<double>(rope.original_context)));
  rope.beta_fast = parameters.Number("beta_fast", 1e-3, 1e6, 32);
  rope.beta_slow = parameters.Number("beta_slow", 1e-3, 1e6, 1);
  rope.truncate = parameters.Bool("truncate", true);
  if (rope.theta <= 1) parameters.Fail("rope_theta", "with yarn it must be larger than 1");
  const double mscale = parameters.Number("mscale", 0, 1e3, 0);
  const double all_dim = parameters.Number("mscale_all_dim", 0, 1e3, 0);
  double attention = YarnScale(rope.factor, 1);
  if (mscale != 0 && all_dim != 0) {
    attention = YarnScale(rope.factor, mscale) / YarnScale(rope.factor, all_dim);
  }
  rope.attention_factor = parameters.Number("attention_factor", 1e-3, 1e3, attention);
  // There the rotated elements alone would be multiplied.
  if (config.is_latent() && all_dim != 0) {
    const double growth = YarnScale(rope.factor, all_dim);
    config.attention_scale *= growth * growth;
  }
}

// Reads "dynamic". It depends on the length of a sequence, and is none up to the context that the
// file states, which is served; or its alpha changes theta once and for all.
void ParseDynamic(JsonObject& parameters, int rotary_dim, ModelConfig& config, RopeConfig& rope) {
  const double alpha = parameters.Number("alpha", 0, 1e9, 0);
  if (alpha > 0 && rotary_dim > 2) {
    rope.theta *= kernels::ExactPow(alpha, static_cast<double>(rotary_dim) / (rotary_dim - 2));
    return;
  }
  config.warnings.push_back(absl::StrCat(parameters.name(),
                                         ": dynamic scaling begins beyond "
                                         "max_position_embeddings; contexts end there"));
}

// Reads the RoPE that `parameters` describe, theta being what the fields around them say.
absl::StatusOr<RopeConfig> ParseRope(JsonObject& json, JsonObject& parameters, double theta,
                                     ModelConfig& config) {
  const int64_t context = config.context_length;
  RopeConfig rope;
  rope.theta = parameters.Number("rope_theta", 1, 1e12, theta);
  const std::string type = parameters.String("rope_type", parameters.String("type", "default"));
  if (type == "linear") {
    rope.type = RopeConfig::Type::kLinear;
    rope.factor = parameters.Number("factor", 1, 1e6, std::nullopt);
  } else if (type == "llama3") {
    rope.type = RopeConfig::Type::kLlama3;
    rope.factor = parameters.Number("factor", 1, 1e6, std::nullopt);
    rope.low_freq_factor = parameters.Number("low_freq_factor", 1e-3, 1e6, std::nullopt);
    rope.high_freq_factor = parameters.Number("high_freq_factor", 1e-3, 1e6, std::nullopt);
    if (rope.high_freq_factor < rope.low_freq_factor) {
      parameters.Fail("high_freq_factor", "it must not be less than low_freq_factor");
    }
    rope.original_context =
        parameters.Int("original_max_position_embeddings", 1, kMaxContextLength, context);
  } else if (type == "longrope" || type == "su") {
    ParseLongRope(json, parameters, context, config.rotary_dim, rope);
  } else if (type == "yarn") {
    ParseYarn(json, parameters, context, config, rope);
  } else if (type == "dynamic") {
    ParseDynamic(parameters, config.rotary_dim, config, rope);
  } else if (type == "proportional") {
    rope.type = RopeConfig::Type::kProportional;
    rope.factor = parameters.Number("factor", 1e-6, 1e6, 1);
    rope.part = parameters.Number("partial_rotary_factor", 0, 1, 1);
  } else if (type != "default") {
    return absl::UnimplementedError(absl::StrCat(json.name(), ": rope type \"", type.substr(0, 60),
                                                 "\" is not known; known are default, dynamic, "
                                                 "linear, llama3, longrope, proportional, yarn"));
  }
  if (const double growth = parameters.Number("llama_4_scaling_beta", 0, 1e3, 0); growth > 0) {
    config.query_growth = growth;
    config.query_growth_period =
        parameters.Int("original_max_position_embeddings", 1, kMaxContextLength, context);
  }
  RETURN_IF_ERROR(parameters.status());
  RETURN_IF_ERROR(CheckUnread(parameters, kOthers, config.allow_unread));
  return rope;
}

// Number of elements of each head that are rotated: all, or a part in families that have one.
void ParseRotaryDim(const Family& family, JsonObject& json, JsonObject& parameters,
                    ModelConfig& config) {
  if (config.is_latent()) {
    config.rotary_dim = config.latent.rotated_dim;
    return;
  }
  if (family.rope_scope == RopeScope::kNone) {  // says nothing
    for (JsonObject* const object : {&json, &parameters}) object->Raw("partial_rotary_factor");
    config.rotary_dim = config.head_dim;
    return;
  }
  if (parameters.Raw("rope_type") == "proportional") {  // of it pairs stand as of the whole head
    config.rotary_dim = config.head_dim;
    return;
  }
  double factor = json.Number("partial_rotary_factor", 0, 1, family.rotary_factor);
  factor = parameters.Number("partial_rotary_factor", 0, 1, factor);
  if (!family.partial_rotary && factor != 1) {
    json.Fail("partial_rotary_factor", "heads are rotated whole, it must be 1");
  }
  config.rotary_dim = static_cast<int>(config.head_dim * factor);
  if (config.rotary_dim % 2 != 0 || config.rotary_dim < 2) {
    json.Fail("partial_rotary_factor",
              absl::StrCat("it rotates ", config.rotary_dim, " of ", config.head_dim,
                           " elements of a head; they must be even and at least 2"));
    config.rotary_dim = 2;
  }
}

// Reads how queries of layers without RoPE grow with their position, counted from 1.
void ParseTemperature(JsonObject& json, ModelConfig& config) {
  // Older files have a number here.
  const nlohmann::json& is_on = json.Raw("attn_temperature_tuning");
  const double growth = json.Number("attn_scale", 0, 1e3, 0.1);
  const int64_t period = json.Int("floor_scale", 1, kMaxContextLength, 8192);
  if (!is_on.is_null() && !is_on.is_boolean() && !is_on.is_number()) {
    return json.Fail("attn_temperature_tuning", "it must be true or false");
  }
  if (is_on == false || is_on == 0) return;
  if (config.query_growth != 0) {
    return json.Fail("attn_temperature_tuning", "llama_4_scaling_beta is there, too");
  }
  config.query_growth = growth;
  config.query_growth_period = period;
  config.query_growth_offset = 1;
  config.grows_without_rope = true;
}

// The context that a scaled RoPE serves.
int ScaledContext(const Family& family, const RopeConfig& rope, int context) {
  double scaled = context;
  // Such files state the context before scaling.
  if (rope.type == RopeConfig::Type::kLinear && !family.states_scaled_context) {
    scaled *= rope.factor;
  }
  // These state the one before or the one after.
  if (rope.type == RopeConfig::Type::kYarn) {
    scaled = std::max(scaled, static_cast<double>(rope.original_context) * rope.factor);
  }
  return static_cast<int>(std::min<double>(scaled, kMaxContextLength));
}

}  // namespace

absl::Status ParseRopes(const Family& family, JsonObject& json, const std::vector<bool>& windowed,
                        ModelConfig& config) {
  // Newer files have everything in rope_parameters, perhaps for each kind of layer; older ones have
  // rope_theta beside rope_scaling.
  JsonObject all = json.Object(json.Has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  if (json.Has("rope_parameters")) json.Raw("rope_scaling");
  const bool by_kind = all.Raw(kFull).is_object() || all.Raw(kSliding).is_object();
  JsonObject full = by_kind ? all.Object(kFull) : all;
  const double theta = json.Number("rope_theta", 1, 1e12, family.rope_theta);
  ParseRotaryDim(family, json, full, config);
  RETURN_IF_ERROR(json.status());
  ASSIGN_OR_RETURN(RopeConfig full_rope, ParseRope(json, full, theta, config));
  RopeConfig sliding_rope = full_rope;
  if (family.proportional_part != 0 && all.value().empty()) {
    full_rope.type = RopeConfig::Type::kProportional;
    full_rope.part = family.proportional_part;
  }
  if (!config.other_heads.layers.empty()) full_rope.rotary_dim = config.other_heads.head_dim;
  if (by_kind) {
    JsonObject sliding = all.Object(kSliding);
    const double local = family.local_rope_theta != 0 ? family.local_rope_theta : theta;
    ASSIGN_OR_RETURN(sliding_rope, ParseRope(json, sliding, local, config));
    RETURN_IF_ERROR(all.status());
    RETURN_IF_ERROR(CheckUnread(all, "", config.allow_unread));
  } else if (family.local_rope_theta != 0) {
    sliding_rope = {.theta = json.Number("rope_local_base_freq", 1, 1e12, family.local_rope_theta)};
  } else if (family.scales_full_rope_only) {
    sliding_rope = {.theta = full_rope.theta};
  }
  if (family.local_rope_theta != 0) json.Raw("rope_local_base_freq");
  const std::vector<bool> without = RopeLessLayers(family, json, windowed);
  if (family.tunes_temperature) ParseTemperature(json, config);
  RETURN_IF_ERROR(json.status());
  const int context = config.context_length;
  config.context_length = ScaledContext(family, full_rope, context);
  config.ropes.clear();
  config.layer_ropes.clear();
  for (size_t i = 0; i < windowed.size(); ++i) {
    const RopeConfig& rope = windowed[i] ? sliding_rope : full_rope;
    const RopeConfig none = {.type = RopeConfig::Type::kNone};
    const RopeConfig& own = without[i] ? none : rope;
    auto it = std::ranges::find(config.ropes, own);
    if (it == config.ropes.end()) it = config.ropes.insert(it, own);
    config.layer_ropes.push_back(static_cast<uint8_t>(it - config.ropes.begin()));
  }
  CONTINUO_CHECK(config.ropes.size() <= kMaxRopes);
  return absl::OkStatus();
}

}  // namespace continuo::model
