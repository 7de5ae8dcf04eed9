// SPDX-License-Identifier: Apache-2.0
// Measures what a grammar costs: grammar_bench MODEL_DIR [ROUNDS]. For answers of several grammars
// it prints how long compiling and copying takes, and for every token of the answer what a mask and
// Accept take, by where in the answer the token stands. Each round is a new answer of the compiled
// grammar, as requests are: nothing that an earlier answer found out helps.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/clock.h"
#include "services/base/check.h"
#include "services/worker/text/grammar/grammar.h"
#include "services/worker/text/text_model.h"

namespace continuo {
namespace {

using text::Grammar;
using text::GrammarSource;
using Kind = text::GrammarSource::Kind;

struct Workload {
  const char* name;
  Kind kind;
  std::string source;
  std::string answer;
};

const std::string kPerson = R"({
  "type": "object",
  "properties": {
    "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "email": {"type": "string", "format": "email"},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}},
    "address": {"type": "object",
                "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
                               "country": {"enum": ["Germany", "France", "Peru"]}},
                "required": ["street", "zip", "country"], "additionalProperties": false},
    "balance": {"type": "number"}, "active": {"type": "boolean"}},
  "required": ["name", "age", "email", "tags", "address", "balance", "active"], "additionalProperties": false})";
const std::string kPersonAnswer =
    R"({"name": "Ada Lovelace, countess of a place in the north", "age": 36, "email": "ada.lovelace@example.org", )"
    R"("tags": ["mathematics", "first programmer", "poet"], "address": {"street": "12 St James's Square", )"
    R"("zip": "10115", "country": "Germany"}, "balance": -1234.5678, "active": true})";
const std::string kCalls = R"JSON(start: text | call+
text: /[^<](.|\n)*/
call: "<tool_call>\n" %json {
  "anyOf": [
    {"type": "object", "properties": {"name": {"const": "get_weather"}, "arguments": {"type": "object",
      "properties": {"place": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14}},
      "required": ["place"], "additionalProperties": false}}, "required": ["name", "arguments"],
      "additionalProperties": false},
    {"type": "object", "properties": {"name": {"const": "send_mail"}, "arguments": {"type": "object",
      "properties": {"to": {"type": "string"}, "text": {"type": "string"}},
      "required": ["to", "text"], "additionalProperties": false}}, "required": ["name", "arguments"],
      "additionalProperties": false}]
} "\n</tool_call>\n"
)JSON";

std::vector<Workload> Workloads() {
  return {
      {"schema", Kind::kJsonSchema, kPerson, kPersonAnswer},
      {"any object", Kind::kJsonObject, "", kPersonAnswer},
      {"calls", Kind::kLark, kCalls,
       "<tool_call>\n{\"name\": \"send_mail\", \"arguments\": {\"to\": \"ada@example.org\", "
       "\"text\": \"The weather in "
       "Lima is mild today, with 19 degrees.\"}}\n</tool_call>\n"},
      {"regex", Kind::kRegex,
       R"(Answer: \d{1,4}(\.\d+)? (metres|feet)\. Because: [A-Z][\w ,]{10,200}\.)",
       "Answer: 1234.5 metres. Because: The tower was measured, twice, by two people who agree on "
       "it."},
  };
}

// Tells from the text so far where the next token stands.
const char* PlaceOf(std::string_view text) {
  bool in_string = false, is_key = true;
  std::vector<bool> objects;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') objects.push_back(c == '{');
    if ((c == '}' || c == ']') && !objects.empty()) objects.pop_back();
    if (c == '{' || c == ',') is_key = !objects.empty() && objects.back();
    if (c == ':' || c == '[') is_key = false;
  }
  if (in_string) return is_key ? "key" : "string";
  if (!text.empty() && text.back() >= '0' && text.back() <= '9') return "number";
  return "between";
}

class Times {
 public:
  void Add(absl::Duration time) { micros_.push_back(absl::ToDoubleMicroseconds(time)); }
  size_t size() const { return micros_.size(); }
  double Quantile(double q) {
    std::sort(micros_.begin(), micros_.end());
    return micros_[std::min(micros_.size() - 1,
                            static_cast<size_t>(q * static_cast<double>(micros_.size())))];
  }

 private:
  std::vector<double> micros_;
};

void Print(const char* workload, const std::string& what, Times& times) {
  std::printf("%-12s %-16s %7zu %10.1f %10.1f %10.1f\n", workload, what.c_str(), times.size(),
              times.Quantile(0.5), times.Quantile(0.99), times.Quantile(1));
}

void Run(const text::TextModel& model, const Workload& workload, int rounds) {
  std::map<std::string, Times> times;
  std::shared_ptr<const Grammar> grammar;
  for (int round = 0; round < std::min(rounds, 10); ++round) {
    const absl::Time start = absl::Now();
    const auto compiled = Grammar::Compile(
        model, {.kind = workload.kind, .text = workload.source, .is_own_lark = true});
    times["1 compile"].Add(absl::Now() - start);
    if (!compiled.ok()) std::printf("%s\n", std::string(compiled.status().message()).c_str());
    CONTINUO_CHECK(compiled.ok());
    grammar = *compiled;
  }
  const auto ids = model.Encode(workload.answer, false);
  CONTINUO_CHECK(ids.ok());
  std::vector<uint32_t> mask((model.vocab_size() + 31) / 32);
  for (int round = 0; round < rounds; ++round) {
    absl::Time start = absl::Now();
    auto matcher = grammar->NewMatcher();
    times["2 new matcher"].Add(absl::Now() - start);
    CONTINUO_CHECK(matcher.ok());
    std::string text;
    for (const int32_t id : *ids) {
      std::fill(mask.begin(), mask.end(), ~uint32_t{0});
      start = absl::Now();
      (*matcher)->FillMask(mask);
      const absl::Duration time = absl::Now() - start;
      const char* place = workload.kind == Kind::kRegex ? "regex" : PlaceOf(text);
      times["5 all masks"].Add(time);
      times[std::string("6 mask: ") + place].Add(time);
      CONTINUO_CHECK((mask[id / 32] >> (id % 32) & 1) != 0);
      start = absl::Now();
      CONTINUO_CHECK((*matcher)->Accept(id));
      times["4 accept"].Add(absl::Now() - start);
      text += model.TokenBytes(id);
    }
    CONTINUO_CHECK((*matcher)->CanEnd());
    start = absl::Now();
    const auto clone = (*matcher)->Clone();
    times["3 clone"].Add(absl::Now() - start);
    CONTINUO_CHECK(clone.ok());
  }
  for (auto& [what, of] : times) Print(workload.name, what.substr(2), of);
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "grammar_bench MODEL_DIR [ROUNDS]\n");
    return 2;
  }
  const auto model = text::TextModel::Open(argv[1]);
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", std::string(model.status().message()).c_str());
    return 1;
  }
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 20;
  const absl::Time start = absl::Now();
  CONTINUO_CHECK(Grammar::Compile(**model, {.kind = Kind::kRegex, .text = "a"}).ok());
  std::printf("%d tokens; the first grammar, with the trie of the vocabulary: %.0f ms\n\n",
              (*model)->vocab_size(), absl::ToDoubleMilliseconds(absl::Now() - start));
  std::printf("%-12s %-16s %7s %10s %10s %10s\n", "grammar", "what", "number", "p50 us", "p99 us",
              "max us");
  for (const Workload& workload : Workloads()) Run(**model, workload, rounds);
  return 0;
}

}  // namespace
}  // namespace continuo

int main(int argc, char** argv) { return continuo::Main(argc, argv); }
