// SPDX-License-Identifier: Apache-2.0
// Answers grammars at random for validity_test.py: answer_grammars MODEL_DIR. Each line of the
// standard input is {"kind": …, "text": …, "options": […], "seed": …, "answers": …}, each answer a
// line with {"answers": […], "unfinished": …} or {"error": …}. On the way, masks are compared with
// what Accept takes, and with those after a rollback.
#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/check.h"
#include "services/worker/text/grammar/grammar.h"
#include "services/worker/text/text_model.h"

namespace {

using continuo::text::Grammar;
using continuo::text::GrammarMatcher;
using continuo::text::GrammarSource;
using continuo::text::TextModel;

constexpr int kMaxTokens = 400;

class Answerer {
 public:
  Answerer(const TextModel& model, uint64_t seed) : model_(model), random_(seed) {}

  // An answer; empty optional: it did not finish.
  absl::StatusOr<std::string> Answer(GrammarMatcher& matcher, bool* is_finished) {
    std::string text;
    for (int i = 0; i < kMaxTokens; ++i) {
      *is_finished = matcher.MustEnd() || (matcher.CanEnd() && (i > kMaxTokens / 2 || OneOf(3)));
      if (*is_finished) return text;
      const std::vector<uint32_t> mask = Mask(matcher);
      if (matcher.status().ok()) CheckMask(matcher, mask);
      const int32_t id = Pick(mask, /*late=*/i > kMaxTokens / 3);
      const bool accepts = matcher.Accept(id);
      if (!matcher.status().ok()) return matcher.status();
      CONTINUO_CHECK(accepts);
      text += model_.TokenBytes(id);
    }
    return text;
  }

 private:
  bool OneOf(int n) { return random_() % n == 0; }

  std::vector<uint32_t> Mask(GrammarMatcher& matcher) {
    std::vector<uint32_t> mask((model_.vocab_size() + 31) / 32, ~uint32_t{0});
    matcher.FillMask(mask);
    return mask;
  }

  static bool HasBit(const std::vector<uint32_t>& mask, int32_t id) {
    return (mask[id / 32] >> (id % 32) & 1) != 0;
  }

  void CheckMask(GrammarMatcher& matcher, const std::vector<uint32_t>& mask) {
    for (int i = 0; i < 3; ++i) {
      const auto id = static_cast<int32_t>(random_() % model_.vocab_size());
      const bool accepts = matcher.Accept(id);
      if (!matcher.status().ok()) return;
      CONTINUO_CHECK(accepts == HasBit(mask, id));
      if (accepts) matcher.Rollback(1);
    }
    if (!OneOf(4)) return;
    int num_drafts = 0;
    std::vector<uint32_t> here = mask;
    for (; num_drafts < 3 && !matcher.MustEnd(); ++num_drafts) {
      if (!matcher.Accept(Pick(here, false))) break;
      here = Mask(matcher);
    }
    // Drafts that went too far are taken back.
    matcher.Rollback(num_drafts);
    const std::vector<uint32_t> again = Mask(matcher);
    CONTINUO_CHECK(!matcher.status().ok() || again == mask);
  }

  // Likelier are tokens that close something, and printable ones.
  int32_t Pick(const std::vector<uint32_t>& mask, bool late) {
    std::vector<int32_t> all, printable, closing, separating;
    for (int32_t id = 0; id < model_.vocab_size(); ++id) {
      if (!HasBit(mask, id)) continue;
      all.push_back(id);
      const std::string_view bytes = model_.TokenBytes(id);
      if (bytes.empty()) continue;  // an end
      const char first = bytes[0];
      if (first > ' ' && first < 0x7f) printable.push_back(id);
      if (std::string_view("\"}]").find(first) != std::string_view::npos) closing.push_back(id);
      if (std::string_view(",:").find(first) != std::string_view::npos) separating.push_back(id);
    }
    CONTINUO_CHECK(!all.empty());
    const auto one = [&](const std::vector<int32_t>& ids) { return ids[random_() % ids.size()]; };
    if (!closing.empty() && (late || OneOf(3))) return one(closing);
    if (!separating.empty() && OneOf(3)) return one(separating);
    if (!printable.empty() && !OneOf(4)) return one(printable);
    return one(all);
  }

  const TextModel& model_;
  std::mt19937_64 random_;
};

nlohmann::json Answers(const TextModel& model, const nlohmann::json& request) {
  static const std::map<std::string, GrammarSource::Kind> kKinds = {
      {"json_schema", GrammarSource::Kind::kJsonSchema},
      {"json_object", GrammarSource::Kind::kJsonObject},
      {"regex", GrammarSource::Kind::kRegex},
      {"choice", GrammarSource::Kind::kChoice},
      {"lark", GrammarSource::Kind::kLark}};
  const auto grammar =
      Grammar::Compile(model, {.kind = kKinds.at(request.at("kind")),
                               .text = request.value("text", ""),
                               .options = request.value("options", std::vector<std::string>())});
  if (!grammar.ok()) return {{"error", grammar.status().message()}};
  Answerer answerer(model, request.at("seed"));
  nlohmann::json answers = nlohmann::json::array();
  int unfinished = 0;
  for (int i = 0; i < request.at("answers"); ++i) {
    const auto matcher = (*grammar)->NewMatcher();
    CONTINUO_CHECK(matcher.ok());
    bool is_finished = false;
    const auto answer = answerer.Answer(**matcher, &is_finished);
    if (!answer.ok()) return {{"failure", answer.status().message()}};
    if (is_finished) {
      answers.push_back(*answer);
    } else {
      ++unfinished;
    }
  }
  return {{"answers", answers}, {"unfinished", unfinished}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  const auto model = TextModel::Open(argv[1]);
  if (!model.ok()) {
    std::cerr << model.status() << "\n";
    return 1;
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << Answers(**model, nlohmann::json::parse(line)).dump() << std::endl;
  }
  return 0;
}
