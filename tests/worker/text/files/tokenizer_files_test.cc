// SPDX-License-Identifier: Apache-2.0
// Tokenizers that come in other files than tokenizer.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/worker/text/text_model.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/temp_folder.h"

namespace continuo::text {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kFolder[] = "tests/worker/text/files/testdata/";
constexpr const char* kVocabularies[] = {"tekken",        "tiktoken",    "spm_bpe",
                                         "spm_no_prefix", "spm_unigram", "spm_unigram_bytes"};

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::unique_ptr<TextModel> Open(const fs::path& folder) {
  auto model = TextModel::Open(folder.string());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

fs::path FolderOf(const std::string& vocabulary) {
  return testing::SourcePath(kFolder + vocabulary);
}

// A copy of a vocabulary's folder, whose files a test changes.
class TokenizerFilesTest : public ::testing::Test {
 protected:
  void Copy(const std::string& vocabulary) const {
    for (const auto& entry : fs::directory_iterator(FolderOf(vocabulary))) {
      fs::copy_file(entry.path(), copy_.path() / entry.path().filename(),
                    fs::copy_options::overwrite_existing);
    }
  }
  void Write(const std::string& name, std::string_view bytes) const {
    std::ofstream(copy_.path() / name, std::ios::binary | std::ios::trunc) << bytes;
  }
  Json ReadJson(const std::string& name) const {
    return Json::parse(ReadFile(copy_.path() / name));
  }
  absl::Status Status() const { return TextModel::Open(copy_.path().string()).status(); }
  std::string Error() const { return std::string(Status().message()); }

  const testing::TempFolder copy_;
};

TEST_F(TokenizerFilesTest, IdsAreThoseOfTheOriginalPrograms) {
  for (const std::string vocabulary : kVocabularies) {
    const std::unique_ptr<TextModel> model = Open(FolderOf(vocabulary));
    ASSERT_NE(model, nullptr);
    const Json all = Json::parse(ReadFile(FolderOf(vocabulary) / "ids.json"));
    ASSERT_GT(all.size(), 100);
    for (const Json& one : all) {
      const auto text = one[0].get<std::string>();
      auto ids = model->Encode(text, false);
      ASSERT_TRUE(ids.ok()) << ids.status();
      auto original = one[1].get<std::vector<int32_t>>();
      if (*ids != original && model->tokenizer_kind() == "unigram") {
        // The same pieces in another order have the same score.
        std::sort(ids->begin(), ids->end());
        std::sort(original.begin(), original.end());
      }
      EXPECT_EQ(*ids, original) << vocabulary << ": " << one[0];
    }
  }
}

TEST_F(TokenizerFilesTest, TextsComeBack) {
  for (const std::string vocabulary : kVocabularies) {
    if (vocabulary == "spm_unigram") continue;  // its map changes characters, and some are unknown
    const std::unique_ptr<TextModel> model = Open(FolderOf(vocabulary));
    for (const std::string text : {"Hello, world!", "Größe 快速 🦊\n12", "a b"}) {
      const std::string decoded = *model->Decode(*model->Encode(text, false), false);
      // The space that SentencePiece puts in front is stripped at the start of a text alone.
      EXPECT_EQ(decoded.substr(decoded.size() - text.size()), text) << vocabulary;
      EXPECT_LE(decoded.size(), text.size() + 1) << vocabulary;
    }
  }
}

TEST_F(TokenizerFilesTest, TheKindIsTold) {
  EXPECT_EQ(Open(FolderOf("tekken"))->tokenizer_kind(), "byte-level BPE");
  EXPECT_EQ(Open(FolderOf("tekken"))->tokenizer_source(), "tekken.json");
  EXPECT_EQ(Open(FolderOf("tiktoken"))->tokenizer_source(), "tiny.tiktoken");
  EXPECT_EQ(Open(FolderOf("spm_bpe"))->tokenizer_kind(), "BPE with byte fallback");
  EXPECT_EQ(Open(FolderOf("spm_unigram"))->tokenizer_kind(), "unigram");
}

TEST_F(TokenizerFilesTest, SpecialTokensAreFoundAndPutAroundTexts) {
  const std::unique_ptr<TextModel> tekken = Open(FolderOf("tekken"));
  EXPECT_EQ(*tekken->Encode("[INST]", true), (std::vector<int32_t>{1, 3}));
  EXPECT_TRUE(tekken->IsSpecial(3));
  EXPECT_TRUE(tekken->IsSpecial(21)) << "a filler";
  EXPECT_EQ(tekken->TokenName(21), "<SPECIAL_21>");
  EXPECT_THAT(tekken->EndIds({}), ElementsAre(2));
  const std::unique_ptr<TextModel> spm = Open(FolderOf("spm_no_prefix"));
  EXPECT_THAT(spm->EndIds({}), ElementsAre(2));
  EXPECT_EQ(spm->Encode("a", true)->front(), 1) << "BOS, unless the folder says otherwise";
  const std::unique_ptr<TextModel> tiktoken = Open(FolderOf("tiktoken"));
  EXPECT_EQ(*tiktoken->Encode("<|end|>", true), (std::vector<int32_t>{556, 559}));
  EXPECT_THAT(tiktoken->EndIds({}), ElementsAre(559));
}

TEST_F(TokenizerFilesTest, TheFolderSaysWhatIsAddedAndPutInFront) {
  Copy("spm_no_prefix");
  Write("tokenizer_config.json", R"({"add_bos_token": false, "eos_token": "<|im_end|>"})");
  const int32_t size = Open(FolderOf("spm_no_prefix"))->vocab_size();
  Write("added_tokens.json", Json{{"<|im_start|>", size}, {"<|im_end|>", size + 1}}.dump());
  const std::unique_ptr<TextModel> model = Open(copy_.path());
  EXPECT_EQ(model->vocab_size(), size + 2);
  EXPECT_EQ(*model->Encode("<|im_end|>", true), (std::vector<int32_t>{size + 1}));
  EXPECT_THAT(model->EndIds({}), ElementsAre(size + 1));
  Write("added_tokens.json", Json{{"<|im_start|>", size + 7}}.dump());
  EXPECT_THAT(Error(), HasSubstr("<|im_start|>")) << "no token before it";
  Write("added_tokens.json", Json{{"<|im_start|>", 5}}.dump());
  EXPECT_THAT(Error(), HasSubstr("<|im_start|>")) << "the id of another piece";
}

TEST_F(TokenizerFilesTest, ATokenizerJsonComesFirst) {
  Copy("spm_bpe");
  fs::copy_file(testing::SourcePath("tests/worker/text/testdata/byte_level/tokenizer.json"),
                copy_.path() / "tokenizer.json");
  EXPECT_EQ(Open(copy_.path())->tokenizer_source(), "tokenizer.json");
}

TEST_F(TokenizerFilesTest, BrokenTekkensAreRefused) {
  Copy("tekken");
  const Json whole = ReadJson("tekken.json");
  const auto refused = [&](const char* pointer, const Json& value) {
    Json changed = whole;
    changed[Json::json_pointer(pointer)] = value;
    Write("tekken.json", changed.dump());
    EXPECT_EQ(Status().code(), absl::StatusCode::kInvalidArgument) << pointer;
    return Error();
  };
  EXPECT_THAT(refused("/config/default_vocab_size", 100000), HasSubstr("default_vocab_size"));
  Write("tekken.json", [&] {
    Json changed = whole;
    changed["config"]["default_num_special_tokens"] = 4000000;
    changed["config"]["default_vocab_size"] = 4000500;
    return changed.dump();
  }());
  EXPECT_THAT(Error(), HasSubstr("default_num_special_tokens 4000000"));
  EXPECT_THAT(refused("/config/default_num_special_tokens", -1), HasSubstr("tekken.json"));
  EXPECT_THAT(refused("/config/default_num_special_tokens", 18), HasSubstr("special_tokens[18]"));
  EXPECT_THAT(refused("/vocab/7/rank", 8), HasSubstr("vocab[7]"));
  EXPECT_THAT(refused("/vocab/7/token_bytes", "!"), HasSubstr("base64"));
  EXPECT_THAT(refused("/vocab/7/token_bytes", "AA=="), HasSubstr("twice"));
  EXPECT_THAT(refused("/vocab/300/token_bytes", ""), HasSubstr("empty"));
  EXPECT_THAT(refused("/config/pattern", "("), HasSubstr("tekken.json"));
  EXPECT_THAT(refused("/vocab", Json::array()), HasSubstr("0 tokens"));
  Write("tekken.json", "{");
  EXPECT_THAT(Error(), HasSubstr("tekken.json"));
}

TEST_F(TokenizerFilesTest, BrokenRanksAreRefused) {
  Copy("tiktoken");
  const std::string whole = ReadFile(copy_.path() / "tiny.tiktoken");
  Write("tiny.tiktoken", whole + "hm\n");
  EXPECT_THAT(Error(), HasSubstr("line 557"));
  Write("tiny.tiktoken", whole + "QQ== 4194304\n");
  EXPECT_THAT(Error(), HasSubstr("4194304"));
  Write("tiny.tiktoken", whole + "QQ== 600\n");
  EXPECT_THAT(Error(), HasSubstr("twice"));
  Write("tiny.tiktoken", "no ranks");
  EXPECT_THAT(Error(), HasSubstr("tiny.tiktoken"));
  Write("tiny.tiktoken", "QQ== 0\n");
  EXPECT_THAT(Error(), HasSubstr("no token is the byte 0"));
  Write("tiny.tiktoken", whole);
  Write("second.tiktoken", whole);
  EXPECT_THAT(Error(), HasSubstr("several tokenizers"));
}

// Beside all bytes, which are the ranks from 0 on. A hundred thousand lines say some gigabytes of
// merges.
TEST_F(TokenizerFilesTest, RanksWithTooManyMergesAreRefused) {
  Copy("tiktoken");
  const auto open = [&](const std::vector<std::string>& tokens) {
    std::string lines;
    int rank = 0;
    for (int byte = 0; byte < 256; ++byte) {
      lines += absl::StrCat(absl::Base64Escape(std::string(1, static_cast<char>(byte))), " ",
                            rank++, "\n");
    }
    for (const std::string& token : tokens) {
      lines += absl::StrCat(absl::Base64Escape(token), " ", rank++, "\n");
    }
    Write("tiny.tiktoken", lines);
    return Status();
  };
  // Each way to cut such a token is a merge.
  std::vector<std::string> runs;
  for (size_t i = 2; i <= 1024; ++i) runs.emplace_back(i, 'a');
  EXPECT_EQ(open(runs).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Error(), HasSubstr("tiny.tiktoken: its tokens have too many merges"));
  runs.resize(200);
  EXPECT_TRUE(open(runs).ok()) << Error();
  // Zero bytes are written in two.
  std::vector<std::string> zeros;
  for (size_t i = 2; i <= 830; ++i) zeros.emplace_back(i, '\0');
  EXPECT_THAT(std::string(open(zeros).message()), HasSubstr("too many merges"));
  // Short tokens have few bytes, and many merges.
  std::vector<std::string> kinds;
  constexpr size_t kLongest = 42;
  for (size_t a = 0; a <= kLongest; ++a) {
    for (size_t b = 0; a + b <= kLongest; ++b) {
      for (size_t c = 0; a + b + c <= kLongest; ++c) {
        for (size_t d = 0; a + b + c + d <= kLongest; ++d) {
          if (a + b + c + d < 2) continue;
          kinds.push_back(std::string(a, 'a') + std::string(b, 'b') + std::string(c, 'c') +
                          std::string(d, 'd'));
        }
      }
    }
  }
  EXPECT_THAT(std::string(open(kinds).message()), HasSubstr("too many merges"));
}

TEST_F(TokenizerFilesTest, RanksWithoutARuleForWordsAreRefusedByName) {
  Copy("tiktoken");
  Write("tokenizer_config.json", "{}");
  EXPECT_EQ(Status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Error(), HasSubstr("pat_str"));
}

TEST_F(TokenizerFilesTest, ATokenizerModelMayHoldRanks) {
  Copy("tiktoken");
  fs::rename(copy_.path() / "tiny.tiktoken", copy_.path() / "tokenizer.model");
  EXPECT_EQ(*Open(copy_.path())->Encode("Hello, world!", false),
            *Open(FolderOf("tiktoken"))->Encode("Hello, world!", false));
}

// Appends a field of a protobuf message.
void Append(std::string& message, int field, std::string_view bytes) {
  message.push_back(static_cast<char>(field << 3 | 2));
  message.push_back(static_cast<char>(bytes.size()));
  message.append(bytes);
}
void Append(std::string& message, int field, uint8_t value) {
  for (int key = field << 3; key != 0; key >>= 7) {
    message.push_back(static_cast<char>((key & 0x7f) | (key > 0x7f ? 0x80 : 0)));
  }
  message.push_back(static_cast<char>(value));
}

TEST_F(TokenizerFilesTest, BrokenSentencePieceModelsAreRefused) {
  Copy("spm_bpe");
  const std::string whole = ReadFile(copy_.path() / "tokenizer.model");
  for (const size_t size : {size_t{1}, size_t{2}, size_t{10}, whole.size() / 2, whole.size() - 1}) {
    Write("tokenizer.model", std::string_view(whole).substr(0, size));
    const absl::Status status = Status();
    EXPECT_FALSE(status.ok()) << size;
    EXPECT_THAT(std::string(status.message()), HasSubstr("tokenizer.model"));
  }
  std::string piece, trainer;
  Append(piece, 1, "x");
  Append(piece, 3, 5);
  std::string unused = whole;
  Append(unused, 1, piece);
  Write("tokenizer.model", unused);
  EXPECT_EQ(Status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Error(), HasSubstr("UNUSED"));
  Append(trainer, 3, 4);  // characters
  std::string characters = whole;
  Append(characters, 2, trainer);
  Write("tokenizer.model", characters);
  EXPECT_EQ(Status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Error(), HasSubstr("type 4"));
}

TEST_F(TokenizerFilesTest, PiecesWithTooManyMergesAreRefused) {
  Copy("spm_bpe");
  std::string model = ReadFile(copy_.path() / "tokenizer.model");
  for (size_t size = 1; size <= 1024; ++size) {
    // A length of two bytes is a varint of two, too.
    const std::string text(size, '\x01');
    std::string piece = "\x0a";
    const auto length = [](std::string& message, size_t bytes) {
      message.push_back(static_cast<char>((bytes & 0x7f) | 0x80));
      message.push_back(static_cast<char>(bytes >> 7));
    };
    length(piece, size);
    piece += text;
    model.push_back('\x0a');
    length(model, piece.size());
    model += piece;
  }
  Write("tokenizer.model", model);
  EXPECT_EQ(Status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Error(), HasSubstr("tokenizer.model: its tokens have too many merges"));
}

TEST_F(TokenizerFilesTest, TheUnknownTokenIsThePieceOfThatKind) {
  Copy("spm_bpe");
  std::string model = ReadFile(copy_.path() / "tokenizer.model"), trainer;
  Append(trainer, 40, 7);  // unk_id names another piece
  Append(model, 2, trainer);
  Write("tokenizer.model", model);
  EXPECT_EQ(Json::parse(Open(copy_.path())->TokenizerInfo(2))["unk_token"], "<unk>");
}

TEST_F(TokenizerFilesTest, AnEmptyAddedTokenIsNamed) {
  Copy("spm_bpe");
  Write("added_tokens.json", R"({"": 9})");
  EXPECT_THAT(Error(), HasSubstr("the added token of the id 9 is empty"));
}

}  // namespace
}  // namespace continuo::text
