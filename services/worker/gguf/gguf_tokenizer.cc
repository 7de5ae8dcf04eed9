// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/base/status_macros.h"
#include "services/base/utf8.h"
#include "services/worker/gguf/absl_view.h"
#include "services/worker/gguf/pre_tokenizers.h"

namespace continuo::gguf {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kPrefix[] = "tokenizer.ggml.";
constexpr char kSpace[] = "\u2581";  // SentencePiece's sign for a space
// Longer pieces have no merges; the longest of real vocabularies are runs of spaces or hyphens.
constexpr size_t kMaxPieceBytes = 1024;

// Kinds of tokens (tokenizer.ggml.token_type).
enum TokenKind : int { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5 };

class TokenizerConverter {
 public:
  explicit TokenizerConverter(const GgufFile& file) : file_(file) {}

  absl::StatusOr<TokenizerTexts> Convert() {
    RETURN_IF_ERROR(ReadTokens());
    const std::string_view model = file_.Text(Key("model")).value_or("");
    Json json = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
    json["added_tokens"] = AddedTokens();
    if (model == "gpt2") {
      RETURN_IF_ERROR(AddByteLevel(json));
    } else if (model == "llama") {
      RETURN_IF_ERROR(AddSentencePiece(json));
    } else if (model == "gemma4") {
      RETURN_IF_ERROR(AddGemma4(json));
    } else if (model == "t5") {
      return absl::UnimplementedError(absl::StrCat(
          file_.name(),
          ": tokenizer.ggml.model \"t5\" is SentencePiece's unigram model, which is not "
          "supported in GGUF files; no family that is served has it there"));
    } else {
      return absl::UnimplementedError(absl::StrCat(
          file_.name(), ": tokenizer.ggml.model ",
          model.empty() ? "is missing"
                        : absl::StrCat("\"", Absl(model.substr(0, 60)), "\" is not known"),
          "; known are gpt2 (byte-level BPE), llama (SentencePiece's BPE) and gemma4 (BPE of whole "
          "texts)"));
    }
    ASSIGN_OR_RETURN(json["post_processor"], PostProcessor());
    TokenizerTexts texts;
    texts.tokenizer = json.dump();
    ASSIGN_OR_RETURN(const Json config, TokenizerConfig());
    texts.tokenizer_config = config.dump();
    return texts;
  }

 private:
  std::string Key(std::string_view name) const { return absl::StrCat(kPrefix, Absl(name)); }
  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat(file_.name(), ": ", parts...));
  }

  absl::Status ReadTokens() {
    const auto* const tokens = file_.Texts(Key("tokens"));
    if (tokens == nullptr || tokens->empty()) {
      return Error("has no ", Key("tokens"), ": it has no tokenizer");
    }
    tokens_ = tokens;
    kinds_.assign(tokens->size(), kNormal);
    if (const auto* const kinds = file_.Numbers(Key("token_type")); kinds != nullptr) {
      if (kinds->size() != tokens->size()) {
        return Error("has ", tokens->size(), " tokens and ", kinds->size(), " token types");
      }
      for (size_t i = 0; i < kinds->size(); ++i) {
        const double kind = (*kinds)[i];
        if (kind >= 0 && kind < 100) kinds_[i] = static_cast<int>(kind);
      }
    }
    for (size_t i = 0; i < tokens->size(); ++i) {
      const std::string_view token = (*tokens)[i];
      if (!IsUtf8(token)) return Error("token ", i, " is not UTF-8");
      // A vocabulary that names a token twice has an id that no text leads to: the first counts.
      ids_.emplace(token, i);
    }
    return absl::OkStatus();
  }

  // A token that `name` ("bos") gives the id of.
  absl::StatusOr<std::optional<size_t>> Special(std::string_view name) const {
    const std::optional<int64_t> id = file_.Whole(Key(absl::StrCat(Absl(name), "_token_id")));
    if (!id.has_value() || *id == -1 || *id == std::numeric_limits<uint32_t>::max()) {
      return std::nullopt;
    }
    if (*id < 0 || *id >= static_cast<int64_t>(tokens_->size())) {
      return Error(Key(absl::StrCat(Absl(name), "_token_id")), " is ", *id, ", and there are ",
                   tokens_->size(), " tokens");
    }
    return static_cast<size_t>(*id);
  }

  Json AddedTokens() const {
    Json added = Json::array();
    for (size_t i = 0; i < tokens_->size(); ++i) {
      const bool is_control = kinds_[i] == kControl || kinds_[i] == kUnknown;
      if (!is_control && kinds_[i] != kUserDefined) continue;
      added.push_back({{"id", i},
                       {"content", std::string((*tokens_)[i])},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", is_control}});
    }
    return added;
  }

  Json Vocabulary() const {
    // Pairs of an object with the file's order; a token that is there twice has its first id.
    Json::object_t vocabulary;
    vocabulary.reserve(tokens_->size());
    for (size_t i = 0; i < tokens_->size(); ++i) {
      const std::string_view token = (*tokens_)[i];
      if (ids_.at(token) != i) continue;
      vocabulary.Container::emplace_back(std::string(token), i);
    }
    return Json(std::move(vocabulary));
  }

  Json Model(Json merges, bool byte_fallback, const Json& unknown, bool ignore_merges) const {
    return {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", unknown},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", byte_fallback},
            {"byte_fallback", byte_fallback},
            {"ignore_merges", ignore_merges},
            {"vocab", Vocabulary()},
            {"merges", std::move(merges)}};
  }

  // The pairs of tokenizer.ggml.merges.
  absl::StatusOr<Json> Merges() const {
    const auto* const merges = file_.Texts(Key("merges"));
    if (merges == nullptr) return Error("has no ", Key("merges"));
    Json list = Json::array();
    for (size_t i = 0; i < merges->size(); ++i) {
      const std::string_view merge = (*merges)[i];
      const size_t space = merge.find(' ', 1);
      if (!IsUtf8(merge) || space == std::string_view::npos) {
        return Error(Key("merges"), " has an element ", i, " that is no pair");
      }
      list.push_back(
          Json::array({std::string(merge.substr(0, space)), std::string(merge.substr(space + 1))}));
    }
    return list;
  }

  absl::Status AddByteLevel(Json& json) {
    const std::string_view pre = file_.Text(Key("pre")).value_or("");
    if (pre.empty()) {
      return Error("has no ", Key("pre"),
                   ", the rule that divides text into words; convert the "
                   "model again with a newer converter");
    }
    absl::StatusOr<PreTokenizer> rule = FindPreTokenizer(pre);
    if (!rule.ok()) {
      return absl::Status(rule.status().code(),
                          absl::StrCat(file_.name(), ": ", rule.status().message()));
    }
    adds_bos_ = rule->adds_bos;
    ASSIGN_OR_RETURN(Json list, Merges());
    json["normalizer"] = rule->normalizer;
    json["pre_tokenizer"] = rule->pre_tokenizer;
    json["decoder"] = {{"type", "ByteLevel"},
                       {"add_prefix_space", true},
                       {"trim_offsets", true},
                       {"use_regex", true}};
    json["model"] = Model(std::move(list), false, nullptr, rule->ignore_merges);
    return absl::OkStatus();
  }

  // SentencePiece merges the neighbours whose joint piece has the best score; merges by rank do the
  // same where each pair that makes a piece has the piece's rank (transformers' SpmConverter).
  absl::StatusOr<Json> MergesOfScores() const {
    const auto* const scores = file_.Numbers(Key("scores"));
    if (scores == nullptr || scores->size() != tokens_->size()) {
      return Error(Key("scores"), " has ", scores == nullptr ? 0 : scores->size(),
                   " elements, and there are ", tokens_->size(), " tokens");
    }
    struct Merge {
      double score;
      size_t left, right;
    };
    std::vector<Merge> merges, of_piece;
    for (size_t i = 0; i < tokens_->size(); ++i) {
      const std::string_view piece = (*tokens_)[i];
      const bool is_piece =
          kinds_[i] == kNormal || kinds_[i] == kUserDefined || kinds_[i] == kUnused;
      if (!is_piece || ids_.at(piece) != i || piece.size() > kMaxPieceBytes) continue;
      of_piece.clear();
      for (size_t at = 1; at < piece.size(); ++at) {
        if ((static_cast<uint8_t>(piece[at]) & 0xc0) == 0x80) continue;  // within a character
        const auto left = ids_.find(piece.substr(0, at)), right = ids_.find(piece.substr(at));
        if (left == ids_.end() || right == ids_.end()) continue;
        of_piece.push_back({(*scores)[i], left->second, right->second});
      }
      std::sort(of_piece.begin(), of_piece.end(), [](const Merge& a, const Merge& b) {
        return std::tie(a.left, a.right) < std::tie(b.left, b.right);
      });
      merges.insert(merges.end(), of_piece.begin(), of_piece.end());
    }
    std::stable_sort(merges.begin(), merges.end(),
                     [](const Merge& a, const Merge& b) { return a.score > b.score; });
    Json list = Json::array();
    for (const Merge& merge : merges) {
      list.push_back(
          Json::array({std::string((*tokens_)[merge.left]), std::string((*tokens_)[merge.right])}));
    }
    return list;
  }

  absl::Status AddSentencePiece(Json& json) {
    ASSIGN_OR_RETURN(Json merges, MergesOfScores());
    return AddWholeTexts(json, std::move(merges), /*prefix=*/true);
  }

  // Gemma 4's: merges of texts whose spaces are replaced, and which nothing divides.
  absl::Status AddGemma4(Json& json) {
    ASSIGN_OR_RETURN(Json merges, Merges());
    return AddWholeTexts(json, std::move(merges), /*prefix=*/false);
  }

  // BPE of whole texts, with bytes for characters that are no tokens. `prefix`: a space comes in
  // front of a text, unless the file says otherwise.
  absl::Status AddWholeTexts(Json& json, Json merges, bool prefix) {
    adds_bos_ = true;
    ASSIGN_OR_RETURN(const std::optional<size_t> unknown, Special("unknown"));
    prefix = file_.Flag(Key("add_space_prefix")).value_or(prefix);
    Json replace = {
        {"type", "Replace"}, {"pattern", Json::object({{"String", " "}})}, {"content", kSpace}};
    Json normalizers = Json::array();
    if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
    normalizers.push_back(std::move(replace));
    json["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}};
    json["pre_tokenizer"] = nullptr;
    Json decoders = Json::array();
    decoders.push_back(
        {{"type", "Replace"}, {"pattern", Json::object({{"String", kSpace}})}, {"content", " "}});
    decoders.push_back(Json::object({{"type", "ByteFallback"}}));
    decoders.push_back(Json::object({{"type", "Fuse"}}));
    if (prefix) {
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    json["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
    const Json unknown_token =
        unknown.has_value() ? Json(std::string((*tokens_)[*unknown])) : Json(nullptr);
    json["model"] = Model(std::move(merges), true, unknown_token, false);
    return absl::OkStatus();
  }

  // Puts the tokens that begin and end a text around it.
  absl::StatusOr<Json> PostProcessor() const {
    ASSIGN_OR_RETURN(const std::optional<size_t> bos, Special("bos"));
    ASSIGN_OR_RETURN(const std::optional<size_t> eos, Special("eos"));
    Json single = Json::array(), pair = Json::array(), special = Json::object();
    const auto add = [&](size_t id) {
      const std::string token((*tokens_)[id]);
      single.push_back(Json::object({{"SpecialToken", {{"id", token}, {"type_id", 0}}}}));
      pair.push_back(single.back());
      special[token] = {
          {"id", token}, {"ids", Json::array({id})}, {"tokens", Json::array({token})}};
    };
    if (bos.has_value() && AddsBos()) add(*bos);
    single.push_back(Json::object({{"Sequence", {{"id", "A"}, {"type_id", 0}}}}));
    pair.push_back(single.back());
    pair.push_back(Json::object({{"Sequence", {{"id", "B"}, {"type_id", 1}}}}));
    if (eos.has_value() && AddsEos()) add(*eos);
    if (special.empty()) return Json(nullptr);
    return Json{{"type", "TemplateProcessing"},
                {"single", std::move(single)},
                {"pair", std::move(pair)},
                {"special_tokens", std::move(special)}};
  }

  bool AddsBos() const { return file_.Flag(Key("add_bos_token")).value_or(adds_bos_); }
  bool AddsEos() const { return file_.Flag(Key("add_eos_token")).value_or(false); }

  absl::StatusOr<Json> TokenizerConfig() const {
    Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                   {"clean_up_tokenization_spaces", false},
                   {"add_bos_token", AddsBos()},
                   {"add_eos_token", AddsEos()}};
    constexpr std::pair<const char*, const char*> kNames[] = {{"bos", "bos_token"},
                                                              {"eos", "eos_token"},
                                                              {"unknown", "unk_token"},
                                                              {"padding", "pad_token"}};
    for (const auto& [name, field] : kNames) {
      ASSIGN_OR_RETURN(const std::optional<size_t> id, Special(name));
      if (id.has_value()) config[field] = std::string((*tokens_)[*id]);
    }
    // The one without a name is the default, others are below its key with theirs.
    constexpr std::string_view kTemplate = "tokenizer.chat_template";
    Json templates = Json::array();
    for (const auto& [key, value] : file_.metadata()) {
      const auto* const text = std::get_if<std::string_view>(&value);
      if (text == nullptr || !key.starts_with(kTemplate)) continue;
      std::string_view name = key.substr(kTemplate.size());
      if (!name.empty() && name[0] != '.') continue;
      if (!name.empty()) name.remove_prefix(1);
      if (!IsUtf8(*text)) return Error(Absl(key), " is not UTF-8");
      templates.push_back({{"name", name.empty() ? "default" : std::string(name)},
                           {"template", std::string(*text)}});
    }
    if (templates.size() == 1 && templates[0]["name"] == "default") {
      config["chat_template"] = templates[0]["template"];
    } else if (!templates.empty()) {
      config["chat_template"] = std::move(templates);
    }
    return config;
  }

  const GgufFile& file_;
  const std::vector<std::string_view>* tokens_ = nullptr;
  std::vector<int> kinds_;
  absl::flat_hash_map<std::string_view, size_t> ids_;  // of the first token with that text
  bool adds_bos_ = false;                              // where the file does not say
};

}  // namespace

absl::StatusOr<TokenizerTexts> TokenizerOf(const GgufFile& file) {
  return TokenizerConverter(file).Convert();
}

}  // namespace continuo::gguf
