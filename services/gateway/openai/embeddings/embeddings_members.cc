// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/embeddings/embeddings_members.h"

namespace continuo::gateway::openai::embeddings {
namespace {

using enum Disposition;

constexpr std::string_view kTruncate = "write truncate_prompt_tokens";
constexpr std::string_view kPrompt = "write prompt_name, or the text itself in front of the input";
constexpr std::string_view kFloats = "values are float32, in base64 little-endian";
constexpr std::string_view kLabel = "a label of the caller's";

constexpr ObjectMember kBodyMembers[] = {
    {"input", kDone, "a text, token ids, or an array of 1 to 2,048 of either", ""},
    {"model", kDone, "may be left out where one model is served", ""},
    {"encoding_format", kDone, "\"float\" (the default) or \"base64\"", ""},
    {"dimensions", kDone, "the first so many values of each vector, scaled again", ""},
    {"normalize", kDone, "vectors of length 1; the default is the model's", ""},
    {"prompt_name", kDone,
     "one of the model's prompts, which goes in front of texts; \"\" is none, and the default the "
     "model's",
     ""},
    {"truncate_prompt_tokens", kDone,
     "keeps so many tokens of each input; -1 is what the model takes. Without it an input that is "
     "too long is refused",
     ""},
    {"truncation_side", kDone, "\"right\" (the default) keeps the first tokens, \"left\" the last",
     ""},
    {"cache_salt", kDone, "only requests with the same salt share cached prefixes", ""},
    {"priority", kDone, "-100 to 100; higher runs first", ""},
    {"user", kHarmless, kLabel, ""},
    {"safety_identifier", kHarmless, kLabel, ""},
    {"metadata", kHarmless, kLabel, ""},
    {"messages", kRefused, "write the text as input", "[[]]"},
    {"add_special_tokens", kRefused, "token ids get nothing", "[true]"},
    {"truncate", kRefused, kTruncate, R"([false,"NONE"])"},
    {"truncation_direction", kRefused, kTruncate, R"(["Right"])"},
    {"input_type", kRefused, kPrompt, R"([""])"},
    {"task", kRefused, kPrompt, R"([""])"},
    {"embed_dtype", kRefused, kFloats, R"(["float32"])"},
    {"endianness", kRefused, kFloats, R"(["native","little"])"},
    {"embedding_types", kRefused, kFloats, R"([["float"]])"},
    {"use_activation", kRefused, "write normalize", ""},
    {"late_chunking", kRefused, "each input is a text of its own", "[false]"},
    {"mm_processor_kwargs", kRefused, "text is all that goes in", "[{}]"},
    {"request_id", kRefused, "the server names requests; the header x-request-id comes back", ""},
};

}  // namespace

const ObjectMembers kBody = {"/v1/embeddings", kBodyMembers};

std::span<const ObjectMembers* const> Objects() {
  static constexpr const ObjectMembers* kAll[] = {&kBody};
  return kAll;
}

}  // namespace continuo::gateway::openai::embeddings
