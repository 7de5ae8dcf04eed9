// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model_task.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "services/worker/model/load/model_loader.h"
#include "services/worker/plan_load.h"
#include "services/worker/serving.h"
#include "services/worker/text/text_model.h"
#include "tests/testing/gguf_writer.h"
#include "tests/testing/tiny_model.h"

namespace continuo::worker {
namespace {

using ::testing::HasSubstr;
using testing::TinyModel;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// Makes the folder one of sentence-transformers.
void AddModules(const TinyModel& tiny) {
  std::filesystem::create_directories(std::filesystem::path(tiny.dir()) / "1_Pooling");
  tiny.Write("modules.json", R"([{"type": "s.Transformer", "path": ""},
                                 {"type": "s.Pooling", "path": "1_Pooling"},
                                 {"type": "s.Normalize", "path": "2_Normalize"}])");
  tiny.Write("1_Pooling/config.json",
             R"({"embedding_dimension": 48, "pooling_mode": "lasttoken"})");
}

WorkerConfig ConfigOf(const std::string& dir, const std::string& task = "auto") {
  WorkerConfig config;
  config.load.source.dir = dir;
  config.task = task;
  return config;
}

TEST(ModelTaskTest, ModulesMakeAnEmbeddingModel) {
  const TinyModel tiny({.family = "qwen3"});
  WorkerConfig config = ConfigOf(tiny.dir());
  ASSERT_TRUE(ApplyTask(config).ok());
  EXPECT_FALSE(config.embedding.has_value());
  EXPECT_FALSE(config.load.reads_states);
  AddModules(tiny);
  ASSERT_TRUE(ApplyTask(config).ok());
  ASSERT_TRUE(config.embedding.has_value());
  EXPECT_TRUE(config.embedding->normalises);
  EXPECT_TRUE(config.load.reads_states);
  EXPECT_EQ(config.speculation, "off");
  WorkerConfig generates = ConfigOf(tiny.dir(), "generate");
  ASSERT_TRUE(ApplyTask(generates).ok());
  EXPECT_FALSE(generates.embedding.has_value());
}

TEST(ModelTaskTest, AnyDecoderEmbedsWhereThatIsAsked) {
  const TinyModel tiny;
  WorkerConfig config = ConfigOf(tiny.dir(), "embed");
  ASSERT_TRUE(ApplyTask(config).ok());
  ASSERT_TRUE(config.embedding.has_value());
  EXPECT_TRUE(config.embedding->normalises);
}

TEST(ModelTaskTest, MaxSeqLengthIsTheContextUnlessAFlagSays) {
  const TinyModel tiny({.family = "qwen3"});
  AddModules(tiny);
  tiny.Write("sentence_bert_config.json", R"({"max_seq_length": 100})");
  WorkerConfig config = ConfigOf(tiny.dir());
  ASSERT_TRUE(ApplyTask(config).ok());
  EXPECT_EQ(config.load.source.max_context_tokens, 100);
  tiny.Write("sentence_bert_config.json", R"({"max_seq_length": 100000})");
  config = ConfigOf(tiny.dir());
  ASSERT_TRUE(ApplyTask(config).ok());
  EXPECT_EQ(config.load.source.max_context_tokens, 256) << "the model's";
  config = ConfigOf(tiny.dir());
  config.load.source.max_context_tokens = 50;
  ASSERT_TRUE(ApplyTask(config).ok());
  EXPECT_EQ(config.load.source.max_context_tokens, 50);
}

TEST(ModelTaskTest, DraftsAreOfAnswers) {
  const TinyModel tiny;
  WorkerConfig config = ConfigOf(tiny.dir(), "embed");
  config.speculation = "mtp";
  EXPECT_THAT(std::string(ApplyTask(config).message()), HasSubstr("--speculation=mtp"));
}

TEST(ModelTaskTest, AGgufFileTellsItsPooling) {
  const std::string path =
      (std::filesystem::path(::testing::TempDir()) / "model_task_test.gguf").string();
  const auto task_of = [&](uint32_t pooling) {
    testing::GgufWriter gguf;
    gguf.Key("general.architecture", std::string("qwen3"));
    gguf.Key("qwen3.pooling_type", pooling);
    std::ofstream(path, std::ios::binary) << gguf.Bytes();
    WorkerConfig config = ConfigOf(path);
    const absl::Status status = ApplyTask(config);
    return std::pair(status, config.embedding.has_value());
  };
  EXPECT_EQ(task_of(0), std::pair(absl::OkStatus(), false));
  EXPECT_EQ(task_of(3), std::pair(absl::OkStatus(), true));
  EXPECT_THAT(std::string(task_of(1).first.message()), HasSubstr("qwen3.pooling_type is 1"));
  task_of(3);
  WorkerConfig scores = ConfigOf(path, "score");
  EXPECT_THAT(std::string(ApplyTask(scores).message()), HasSubstr("pooling_type in a GGUF file"));
}

// The whole way from files: the head is absent, and the fingerprint knows the modules.
TEST(ModelTaskTest, AnEmbeddingModelNeedsNoHeadAndIsDescribedAsOne) {
  const TinyModel tiny({.family = "qwen3", .extra_config = R"({"tie_word_embeddings": false})"});
  AddModules(tiny);
  const auto text = text::TextModel::Open(tiny.dir());
  ASSERT_TRUE(text.ok()) << text.status();
  WorkerConfig config = ConfigOf(tiny.dir());
  ASSERT_TRUE(ApplyTask(config).ok());
  const auto loaded = model::LoadModel(*PlanLoad(config, kGiB));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto describe = [&] {
    const auto heads = LoadHeads(config, loaded->config, **text);
    EXPECT_TRUE(heads.ok()) << heads.status();
    return DescribeModel(config, *loaded, text->get(), *heads);
  };
  const server::ServedModel served = describe();
  ASSERT_NE(served.embedding, nullptr);
  EXPECT_EQ(served.embedding->dimensions(), 48);
  EXPECT_TRUE(MakeEngineOptions(config, *loaded, nullptr).reads_states);
  config.embedding->prompts.push_back({"query", "q: "});
  EXPECT_NE(describe().fingerprint, served.fingerprint);
}

TEST(ModelTaskTest, FilesOrTheFlagMakeAModelOfScores) {
  const TinyModel tiny({.family = "qwen3"});
  WorkerConfig config = ConfigOf(tiny.dir(), "score");
  ASSERT_TRUE(ApplyTask(config).ok());
  ASSERT_TRUE(config.score.has_value());
  EXPECT_FALSE(config.embedding.has_value());
  EXPECT_FALSE(config.score->tokens.has_value());
  EXPECT_TRUE(config.load.reads_states);
  EXPECT_EQ(config.speculation, "off");
  std::filesystem::create_directories(std::filesystem::path(tiny.dir()) / "1_LogitScore");
  tiny.Write("modules.json", R"([{"type": "s.Transformer", "path": ""},
                                 {"type": "s.LogitScore", "path": "1_LogitScore"}])");
  tiny.Write("1_LogitScore/config.json", R"({"true_token_id": 121, "false_token_id": 110})");
  tiny.Write("config_sentence_transformers.json",
             R"({"prompts": {"a": "Find."}, "default_prompt_name": "a"})");
  config = ConfigOf(tiny.dir());
  ASSERT_TRUE(ApplyTask(config).ok());
  ASSERT_TRUE(config.score.has_value());
  EXPECT_EQ(config.score->tokens, (embedding::ScoreTokens{.relevant = 121, .irrelevant = 110}));
  EXPECT_EQ(config.score->instruction, "Find.");
  config = ConfigOf(tiny.dir(), "embed");
  EXPECT_THAT(std::string(ApplyTask(config).message()), HasSubstr("--task=embed"));
  const TinyModel pooled({.family = "qwen3"});
  AddModules(pooled);
  config = ConfigOf(pooled.dir(), "score");
  EXPECT_THAT(std::string(ApplyTask(config).message()), HasSubstr("Pooling"));
}

// Texts in lower case are left to the tokenizer, those of vectors and of scores alike.
TEST(ModelTaskTest, ATokenizerThatKeepsCapitalsIsRefusedWhereTheFilesWantNone) {
  for (const bool scores : {false, true}) {
    const TinyModel tiny({.family = "qwen3"});
    AddModules(tiny);
    if (scores) {
      std::filesystem::create_directories(std::filesystem::path(tiny.dir()) / "1_LogitScore");
      tiny.Write("modules.json", R"([{"type": "s.Transformer", "path": ""},
                                     {"type": "s.LogitScore", "path": "1_LogitScore"}])");
      tiny.Write("1_LogitScore/config.json", R"({"true_token_id": 121, "false_token_id": 110})");
    }
    tiny.Write("sentence_bert_config.json", R"({"do_lower_case": true})");
    WorkerConfig config = ConfigOf(tiny.dir());
    ASSERT_TRUE(ApplyTask(config).ok());
    EXPECT_EQ(config.score.has_value(), scores);
    const auto model = model::ReadModelConfig(tiny.dir());
    ASSERT_TRUE(model.ok()) << model.status();
    const auto load = [&] {
      const auto text = text::TextModel::Open(tiny.dir());
      EXPECT_TRUE(text.ok()) << text.status();
      return LoadHeads(config, *model, **text).status();
    };
    EXPECT_EQ(load().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(load().message()), HasSubstr("do_lower_case"));
    nlohmann::json tokenizer = nlohmann::json::parse(tiny.Read("tokenizer.json"));
    tokenizer["normalizer"] = {{"type", "Lowercase"}};
    tiny.Write("tokenizer.json", tokenizer.dump());
    EXPECT_EQ(load(), absl::OkStatus());
  }
}

// An untied model saved without its head would score by its embedding.
TEST(ModelTaskTest, ScoresByTokensNeedTheHead) {
  const TinyModel tied({.family = "qwen3", .tied_embeddings = true});
  WorkerConfig config = ConfigOf(tied.dir(), "score");
  ASSERT_TRUE(ApplyTask(config).ok());
  EXPECT_TRUE(PlanLoad(config, kGiB).ok());
  tied.Write("config.json", [&] {
    nlohmann::json json = nlohmann::json::parse(tied.Read("config.json"));
    json["tie_word_embeddings"] = false;
    return json.dump();
  }());
  config = ConfigOf(tied.dir(), "score");
  ASSERT_TRUE(ApplyTask(config).ok());
  EXPECT_THAT(std::string(PlanLoad(config, kGiB).status().message()), HasSubstr("lm_head.weight"));
  config = ConfigOf(tied.dir(), "embed");
  ASSERT_TRUE(ApplyTask(config).ok());
  EXPECT_TRUE(PlanLoad(config, kGiB).ok()) << "vectors need none";
}

// A class for sequence classification: its head takes the place of the tokens'.
TEST(ModelTaskTest, AHeadOfScoresIsServedAndGeneratesNothing) {
  const TinyModel tiny(
      {.family = "qwen3", .extra_config = R"({"architectures": ["Qwen3ForSequenceClassification"],
                          "id2label": {"0": "LABEL_0"}, "sentence_transformers": {"version": "6"}})"});
  WorkerConfig config = ConfigOf(tiny.dir());
  ASSERT_TRUE(ApplyTask(config).ok());
  ASSERT_TRUE(config.score.has_value());
  EXPECT_TRUE(config.score->has_head);
  const auto text = text::TextModel::Open(tiny.dir());
  const auto loaded = model::LoadModel(*PlanLoad(config, kGiB));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto heads = LoadHeads(config, loaded->config, **text);
  ASSERT_TRUE(heads.ok()) << heads.status();
  EXPECT_EQ(heads->score->pooling(), embedding::Pooling::kLast);
  std::string weights = tiny.Read("model.safetensors");
  weights.replace(weights.find("score.weight"), 5, "other");
  tiny.Write("model.safetensors", weights);
  EXPECT_THAT(std::string(LoadHeads(config, loaded->config, **text).status().message()),
              HasSubstr("score.weight, is missing"));
  WorkerConfig generates = ConfigOf(tiny.dir(), "generate");
  ASSERT_TRUE(ApplyTask(generates).ok());
  EXPECT_THAT(std::string(PlanLoad(generates, kGiB).status().message()), HasSubstr("--task=score"));
}

TEST(ModelTaskTest, AModelOfScoresIsDescribedAsOneAndItsFingerprintKnowsItsTokens) {
  const TinyModel tiny({.family = "qwen3"});
  const auto text = text::TextModel::Open(tiny.dir());
  WorkerConfig config = ConfigOf(tiny.dir(), "score");
  ASSERT_TRUE(ApplyTask(config).ok());
  const auto loaded = model::LoadModel(*PlanLoad(config, kGiB));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(std::string(LoadHeads(config, loaded->config, **text).status().message()),
              HasSubstr("no token \"yes\""));
  const auto describe = [&] {
    const auto heads = LoadHeads(config, loaded->config, **text);
    EXPECT_TRUE(heads.ok()) << heads.status();
    return DescribeModel(config, *loaded, text->get(), *heads);
  };
  config.score->tokens = embedding::ScoreTokens{.relevant = 121, .irrelevant = 110};
  const server::ServedModel served = describe();
  ASSERT_NE(served.score, nullptr);
  ASSERT_NE(served.pairs, nullptr);
  EXPECT_EQ(served.embedding, nullptr);
  EXPECT_FALSE(served.generates());
  config.score->tokens->relevant = 122;
  const std::string other = describe().fingerprint;
  EXPECT_NE(other, served.fingerprint);
  config.score->instruction = "Find.";
  EXPECT_NE(describe().fingerprint, other);
}

}  // namespace
}  // namespace continuo::worker
