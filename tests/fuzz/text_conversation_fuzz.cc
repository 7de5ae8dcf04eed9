// SPDX-License-Identifier: Apache-2.0
// Any conversation and any template arguments are an error, or render to UTF-8 that encodes to ids
// which decode to it. A neighbour's conversation renders to the same text each time.
//
// First byte: which template (and above: text that is encoded as it is); bit 7: the last message is
// to be continued. Second byte: the clock. Then records that end with 0x1e: the template arguments,
// and messages, whose parts (role, content, reasoning, tool_call_id, name) end with 0x1f.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "services/base/check.h"
#include "services/base/utf8.h"
#include "services/worker/text/text_model.h"
#include "tests/testing/text_files.h"

namespace {

// Templates in the style of those that models come with.
constexpr std::array kTemplates = {
    R"({%- for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})",
    // This one has a system message of its own, dates and strict roles.
    R"({%- if messages[0]['role'] == 'system' %}{% set system = messages[0]['content']|trim %}{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}
{%- if not date_string is defined %}{% if strftime_now is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}{% endif %}
{{- bos_token + 'Today Date: ' + date_string + '\n' + system + '<|eot|>' }}
{%- for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{{ m.role + '\n\n' + m.content | trim + '<|eot|>' }}{% endfor %})",
    // This one has reasoning, and reads messages from the end.
    R"({%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %}
{%- if ns.multi_step and message.role == "user" and message.content is string and not (message.content.startswith('<r>') and message.content.endswith('</r>')) %}{% set ns.multi_step = false %}{% set ns.last = index %}{% endif %}{% endfor %}
{%- for message in messages %}{% set content = message.content %}
{%- if message.role == "assistant" %}{% set reasoning = '' %}
{%- if message.reasoning_content is string %}{% set reasoning = message.reasoning_content %}
{%- elif '</think>' in content %}{% set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}
{%- if loop.index0 > ns.last and (loop.last or reasoning) %}{{ '<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' }}{% endif %}{% endif %}
{{- message.role + '\n' + content + '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %})",
    // This one uses every value that is not text.
    R"({%- macro show(value, depth) %}{% if depth > 8 %}...{% elif value is mapping %}{ {%- for k, v in value.items() %}{{ k }}: {{ show(v, depth + 1) }}, {% endfor %}}{% elif value is iterable and value is not string %}[{% for v in value %}{{ show(v, depth + 1) }}, {% endfor %}]{% elif value is none %}null{% else %}{{ value | string }}{% endif %}{% endmacro %}
{{- show(custom, 0) }}{{ custom | tojson }}{{ custom | tojson(indent=2) }}{{ custom | string | length }}
{%- for m in messages %}{{ m | tojson }}{{ m.keys() | list | join('|') }}{% endfor %}{{ documents | tojson }}{{ tools | tojson }})",
    // This one uses arithmetic and strings as Python has them.
    R"({%- for m in messages %}{% set words = m.content.strip().split(' ') %}{{ words | length }}{{ words[-1].upper() }}{{ m.content[:width] }}{{ m.content[width:][::-1] }}{{ m.content.replace('a', fill) }}{{ '%s' ~ m.name }}{{ m.content.title().find('E') }}{{ m.content | capitalize | replace('x', 'y') }}{% if width is number %}{{ width // 3 }}{{ width % 7 }}{{ width * 2 - 1 }}{{ width ** 2 }}{% for i in range(width) %}{{ i }}{% endfor %}{% endif %}{{ loop.cycle('a', 'b') }}{% endfor %}{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(', ') }})"};

// Every byte is a token, and so are the marks of messages.
std::string TokenizerJson() {
  nlohmann::json vocab = nlohmann::json::object();
  const auto utf8 = [](int c) {
    return c < 128
               ? std::string(1, static_cast<char>(c))
               : std::string{static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
  };
  // GPT-2's names of the bytes: those that are no printable character follow from 256 on.
  for (int byte = 0, next = 256; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    vocab[utf8(printable ? byte : next++)] = byte;
  }
  vocab["he"] = 256;
  nlohmann::json added = nlohmann::json::array();
  int id = 257;
  for (const char* const mark : {"<|im_start|>", "<|im_end|>", "<|eot|>"}) {
    added.push_back({{"id", id++},
                     {"content", mark},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const nlohmann::json split = {
      {"type", "Split"},
      {"pattern",
       {{"Regex",
         R"((?i:'s|'t|'re|'ve)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
      {"behavior", "Isolated"},
      {"invert", false}};
  const nlohmann::json bytes = {{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", false}};
  return nlohmann::json{
      {"version", "1.0"},
      {"added_tokens", added},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}},
      {"decoder", bytes},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"h e"}}}}}
      .dump();
}

std::unique_ptr<continuo::text::TextModel> Model(std::string_view chat_template) {
  auto model = continuo::testing::OpenText(
      {.tokenizer_json = TokenizerJson(),
       .tokenizer_config_json = R"({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"})",
       .chat_template = chat_template});
  if (!model.ok()) std::fprintf(stderr, "%s\n", model.status().ToString().c_str());
  CONTINUO_CHECK(model.ok());
  return *std::move(model);
}

// Returns model `number`. Each template has one, and the first has another.
const continuo::text::TextModel& ModelOf(size_t number) {
  static const auto* const kModels = [] {
    auto* const models =
        new std::array<std::unique_ptr<continuo::text::TextModel>, kTemplates.size() + 1>;
    for (size_t i = 0; i < models->size(); ++i) {
      (*models)[i] = Model(kTemplates[i % kTemplates.size()]);
    }
    return models;
  }();
  return *(*kModels)[number];
}

// Returns the part that ends with `mark` and removes it from `rest`; everything where there is no
// mark.
std::string_view Take(std::string_view* rest, char mark) {
  const std::string_view taken = rest->substr(0, rest->find(mark));
  rest->remove_prefix(std::min(taken.size() + 1, rest->size()));
  return taken;
}

void CheckRefusal(const absl::Status& status) {
  CONTINUO_CHECK(status.code() == absl::StatusCode::kInvalidArgument && !status.message().empty());
}

void CheckEncoding(const continuo::text::TextModel& model, std::string_view text) {
  const auto ids = model.Encode(text, /*add_special=*/true);
  if (!ids.ok()) return CheckRefusal(ids.status());
  const auto decoded = model.Decode(*ids, /*keep_special=*/true);
  CONTINUO_CHECK(decoded.ok() && *decoded == text);
}

// Control tokens are the template's: none lies in what the request wrote.
void CheckContent(const continuo::text::TextModel& model,
                  const continuo::text::RenderedChat& chat) {
  const auto ids = model.EncodeChat(chat);
  if (!ids.ok()) return CheckRefusal(ids.status());
  size_t at = 0;
  for (const int32_t id : *ids) {
    const size_t size = model.TokenBytesKeepSpecial(id).size();
    for (const ContinuoSpan& span : chat.content) {
      CONTINUO_CHECK(!model.IsSpecial(id) || at + size <= span.begin || at >= span.end);
    }
    at += size;
  }
  CONTINUO_CHECK(at == chat.text.size());
}

std::string RenderNeighbours(const continuo::text::TextModel& model) {
  continuo::text::ChatPrompt prompt;
  prompt.messages = {{.role = "system", .content = "Be brief."},
                     {.role = "user", .content = "2 < 3 'é' \"😀\"?", .name = "a"},
                     {.role = "assistant", .content = " yes ", .reasoning = "sure"}};
  prompt.template_arguments = R"({"custom": {"a": [1, 2.5, null]}, "width": 3, "fill": "b"})";
  prompt.now_seconds = 1'700'000'000;
  const auto text = model.RenderChat(prompt);
  return text.ok() ? *text : text.status().ToString();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  constexpr size_t kNumKinds = kTemplates.size() + 1;
  const size_t kind = (data[0] & 0x7f) % kNumKinds;
  const continuo::text::TextModel& model = ModelOf(kind);
  std::string_view rest(reinterpret_cast<const char*>(data + 2), size - 2);
  if (kind == kTemplates.size()) {
    CheckEncoding(model, rest);
    return 0;
  }

  continuo::text::ChatPrompt prompt;
  prompt.continue_final_message = (data[0] & 0x80) != 0;
  const int64_t now = int64_t{1} << (data[1] % 63);
  prompt.now_seconds = data[1] >= 128 ? -now : now;
  prompt.template_arguments = Take(&rest, '\x1e');
  while (!rest.empty()) {
    std::string_view message = Take(&rest, '\x1e');
    continuo::text::ChatMessage& m = prompt.messages.emplace_back();
    for (std::string* const part : {&m.role, &m.content, &m.reasoning, &m.tool_call_id, &m.name}) {
      *part = Take(&message, '\x1f');
    }
  }
  const auto chat = model.RenderMarkedChat(prompt);
  const absl::StatusOr<std::string> text =
      chat.ok() ? absl::StatusOr<std::string>(chat->text) : chat.status();
  if (text.ok()) {
    CONTINUO_CHECK(continuo::IsUtf8(*text));
    CheckEncoding(model, *text);
    CheckContent(model, *chat);
  } else {
    CheckRefusal(text.status());
  }

  static int64_t num_runs = 0;
  if (num_runs++ % 16 == 0) {
    static std::array<std::string, kTemplates.size()> expected;
    const std::string neighbours = RenderNeighbours(model);
    if (expected[kind].empty()) expected[kind] = neighbours;
    CONTINUO_CHECK(expected[kind] == neighbours);
    const auto again = model.RenderChat(prompt);
    CONTINUO_CHECK(again.ok() == text.ok() && (!text.ok() || *again == *text));
  }
  return 0;
}
