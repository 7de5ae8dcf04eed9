// SPDX-License-Identifier: Apache-2.0
#include "services/worker/embedding/score_head.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/worker/embedding/host_math.h"
#include "tests/testing/temp_folder.h"

namespace continuo::embedding {
namespace {

using ::testing::HasSubstr;

constexpr int kSize = 12;

model::ModelConfig ConfigOf(bool tied) {
  model::ModelConfig config;
  config.vocab_size = 4;
  config.hidden_size = kSize;
  config.tied_embeddings = tied;
  config.score_head.form = model::ScoreHeadConfig::Form::kProduct;
  return config;
}

// Element i of row r of the tensor with this salt.
float ValueOf(int salt, int r, int i) {
  return static_cast<float>(std::sin(salt + 3 * r + 0.7 * i));
}
std::vector<float> RowOf(int salt, int r) {
  std::vector<float> row;
  for (int i = 0; i < kSize; ++i) row.push_back(ValueOf(salt, r, i));
  return row;
}

// A folder with f32 tensors of rows of kSize, or of `columns`.
class Folder {
 public:
  struct Tensor {
    std::string name;
    int salt, rows;
    int columns = kSize;
    bool is_vector = false;    // its one row
    std::optional<float> all;  // the value of every element
  };
  explicit Folder(const std::vector<Tensor>& tensors) {
    std::string header = "{", data;
    for (const Tensor& t : tensors) {
      const size_t begin = data.size();
      for (int r = 0; r < t.rows; ++r) {
        for (int i = 0; i < t.columns; ++i) {
          const float value = t.all.value_or(ValueOf(t.salt, r, i));
          data.append(reinterpret_cast<const char*>(&value), sizeof(value));
        }
      }
      absl::StrAppend(&header, header.size() > 1 ? "," : "", "\"", t.name,
                      "\":{\"dtype\":\"F32\",\"shape\":[",
                      t.is_vector ? "" : absl::StrCat(t.rows, ","), t.columns,
                      "],\"data_offsets\":[", begin, ",", data.size(), "]}");
    }
    header += "}";
    const uint64_t size = header.size();
    std::string bytes(sizeof(size), '\0');
    std::memcpy(bytes.data(), &size, sizeof(size));
    std::ofstream(folder_.path() / "model.safetensors", std::ios::binary)
        << bytes << header << data;
  }
  absl::StatusOr<std::shared_ptr<const ScoreHead>> Load(const std::optional<ScoreTokens>& tokens,
                                                        const model::ModelConfig& config) const {
    return ScoreHead::Load(folder_.path().string(), tokens, config);
  }

 private:
  testing::TempFolder folder_;
};

double DotOf(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

TEST(ScoreHeadTest, AScoreIsTheSoftmaxOfTwoLogits) {
  const Folder folder({{"model.embed_tokens.weight", 1, 4}, {"lm_head.weight", 2, 4}});
  const std::vector<float> state = RowOf(9, 0);
  for (const bool tied : {false, true}) {
    const auto head = folder.Load(ScoreTokens{.relevant = 3, .irrelevant = 1}, ConfigOf(tied));
    ASSERT_TRUE(head.ok()) << head.status();
    EXPECT_EQ((*head)->state_size(), kSize);
    const int salt = tied ? 1 : 2;
    const double yes = std::exp(DotOf(RowOf(salt, 3), state));
    const double no = std::exp(DotOf(RowOf(salt, 1), state));
    EXPECT_NEAR((*head)->Apply(state), yes / (yes + no), 1e-7);
  }
}

TEST(ScoreHeadTest, OneTokenOrAHeadOfScoresGivesTheSigmoidOfItsLogit) {
  const Folder folder({{"model.embed_tokens.weight", 1, 4}, {"score.weight", 5, 1}});
  const std::vector<float> state = RowOf(9, 0);
  const auto token = folder.Load(ScoreTokens{.relevant = 2}, ConfigOf(true));
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_NEAR((*token)->Apply(state), 1 / (1 + std::exp(-DotOf(RowOf(1, 2), state))), 1e-7);
  model::ModelConfig capped = ConfigOf(true);
  capped.logit_scale = 0.5;
  capped.final_softcap = 2;
  const auto scaled = folder.Load(ScoreTokens{.relevant = 2}, capped);
  const double logit = 2 * std::tanh(DotOf(RowOf(1, 2), state) * 0.5 / 2);
  EXPECT_NEAR((*scaled)->Apply(state), 1 / (1 + std::exp(-logit)), 1e-7);
  const auto head = folder.Load(std::nullopt, capped);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_NEAR((*head)->Apply(state), 1 / (1 + std::exp(-DotOf(RowOf(5, 0), state))), 1e-7);
  EXPECT_NE((*head)->digest(), (*token)->digest());
}

TEST(ScoreHeadTest, AnyStateGivesANumberFromZeroToOneOrNone) {
  const Folder folder({{"score.weight", 5, 1}});
  const auto head = folder.Load(std::nullopt, ConfigOf(false));
  ASSERT_TRUE(head.ok()) << head.status();
  for (const float size : {1e30f, -1e30f}) {
    std::vector<float> state = RowOf(5, 0);
    for (float& value : state) value *= size;
    EXPECT_EQ((*head)->Apply(state), size > 0 ? 1 : 0);
  }
  const std::vector<float> broken(kSize, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan((*head)->Apply(broken)));
  EXPECT_EQ((*head)->Apply(std::vector<float>(kSize)), 0.5f);
}

TEST(ScoreHeadTest, LogitsOrderWhatIsTheSameScore) {
  const Folder folder({{"score.weight", 5, 1}});
  const auto head = folder.Load(std::nullopt, ConfigOf(false));
  ASSERT_TRUE(head.ok()) << head.status();
  const auto scaled = [&](float factor) {
    std::vector<float> state = RowOf(5, 0);
    for (float& value : state) value *= factor;
    return state;
  };
  EXPECT_EQ((*head)->Apply(scaled(4)), (*head)->Apply(scaled(5)));
  EXPECT_LT((*head)->Logit(scaled(4)), (*head)->Logit(scaled(5)));
  EXPECT_NEAR((*head)->Logit(scaled(4)), 4 * DotOf(RowOf(5, 0), RowOf(5, 0)), 1e-5);
  EXPECT_EQ(ScoreHead::ScoreOf(0), 0.5f);
}

model::ModelConfig EncoderConfigOf(model::ScoreHeadConfig::Form form) {
  model::ModelConfig config = ConfigOf(true);
  config.encoder.is_encoder = true;
  config.score_head.form = form;
  config.norm_eps = 1e-5f;
  return config;
}

// What a linear layer with these salts gives, by libm.
std::vector<float> LinearOf(const std::vector<float>& x, int weight, int bias,
                            double (*activation)(double)) {
  std::vector<float> out;
  for (int r = 0; r < kSize; ++r) {
    const double sum =
        DotOf(RowOf(weight, r), x) + (bias < 0 ? 0 : static_cast<double>(ValueOf(bias, 0, r)));
    out.push_back(static_cast<float>(activation(sum)));
  }
  return out;
}

TEST(ScoreHeadTest, EncodersHaveALayerInFrontOfTheProduct) {
  using Form = model::ScoreHeadConfig::Form;
  const std::vector<float> state = RowOf(9, 0);
  const std::vector<float> made = LinearOf(state, 3, 4, [](double x) { return std::tanh(x); });
  const double want = DotOf(made, RowOf(5, 0)) + static_cast<double>(ValueOf(6, 0, 0));
  for (const auto& [form, dense, product] :
       {std::tuple{Form::kPooler, "model.pooler.dense", "classifier"},
        {Form::kClassifier, "classifier.dense", "classifier.out_proj"}}) {
    const Folder folder({{"model.embeddings.word_embeddings.weight", 1, 4},
                         {absl::StrCat(dense, ".weight"), 3, kSize},
                         {absl::StrCat(dense, ".bias"), 4, 1, kSize, true},
                         {absl::StrCat(product, ".weight"), 5, 1},
                         {absl::StrCat(product, ".bias"), 6, 1, 1, true}});
    const auto head = folder.Load(std::nullopt, EncoderConfigOf(form));
    ASSERT_TRUE(head.ok()) << head.status();
    EXPECT_EQ((*head)->pooling(), Pooling::kFirst);
    EXPECT_NEAR((*head)->Logit(state), want, 1e-5);
  }
}

TEST(ScoreHeadTest, APredictionIsNormalisedAndMayReadTheMean) {
  const std::vector<float> state = RowOf(9, 0);
  const std::vector<float> made =
      LinearOf(state, 3, -1, [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); });
  double mean = 0, square = 0;
  for (const float x : made) mean += static_cast<double>(x) / kSize;
  for (const float x : made) square += std::pow(static_cast<double>(x) - mean, 2) / kSize;
  double want = static_cast<double>(ValueOf(6, 0, 0));
  for (int i = 0; i < kSize; ++i) {
    want += (static_cast<double>(made[static_cast<size_t>(i)]) - mean) / std::sqrt(square + 1e-5) *
            static_cast<double>(ValueOf(7, 0, i)) * static_cast<double>(ValueOf(5, 0, i));
  }
  const Folder folder({{"model.embeddings.tok_embeddings.weight", 1, 4},
                       {"head.dense.weight", 3, kSize},
                       {"head.norm.weight", 7, 1, kSize, true},
                       {"classifier.weight", 5, 1},
                       {"classifier.bias", 6, 1, 1, true}});
  model::ModelConfig config = EncoderConfigOf(model::ScoreHeadConfig::Form::kPrediction);
  config.score_head.reads_mean = true;
  const auto head = folder.Load(std::nullopt, config);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ((*head)->pooling(), Pooling::kMean);
  EXPECT_NEAR((*head)->Logit(state), want, 1e-5);
  config.score_head.dense_bias = true;
  EXPECT_THAT(std::string(folder.Load(std::nullopt, config).status().message()),
              HasSubstr("head.dense.bias"));
  config.score_head.dense_bias = false;
  config.norm_bias = true;
  EXPECT_THAT(std::string(folder.Load(std::nullopt, config).status().message()),
              HasSubstr("head.norm.bias"));
}

// Every change is one of scores; those of the bias and of the norm are in the last bit alone.
TEST(ScoreHeadTest, TheDigestKnowsAllThatAScoreDependsOn) {
  const auto digest = [](const model::ModelConfig& config, float bias) {
    const Folder folder({{"model.embeddings.tok_embeddings.weight", 1, 4},
                         {"head.dense.weight", 3, kSize},
                         {"head.norm.weight", 7, 1, kSize, true},
                         {"classifier.weight", 5, 1},
                         {"classifier.bias", 6, 1, 1, true, bias}});
    const auto head = folder.Load(std::nullopt, config);
    EXPECT_TRUE(head.ok()) << head.status();
    return head.ok() ? (*head)->digest() : "";
  };
  const model::ModelConfig config = EncoderConfigOf(model::ScoreHeadConfig::Form::kPrediction);
  const std::string base = digest(config, 0.1f);
  EXPECT_EQ(digest(config, 0.1f), base);
  EXPECT_NE(digest(config, std::nextafter(0.1f, 1.0f)), base);
  model::ModelConfig other = config;
  other.score_head.reads_mean = true;
  EXPECT_NE(digest(other, 0.1f), base);
  other = config;
  other.norm_eps = std::nextafter(config.norm_eps, 1.0f);
  EXPECT_NE(digest(other, 0.1f), base);
}

TEST(ScoreHeadTest, WhatDoesNotFitIsNamed) {
  const auto error = [](const Folder& folder, const std::optional<ScoreTokens>& tokens) {
    const absl::Status status = folder.Load(tokens, ConfigOf(false)).status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  };
  const Folder folder({{"lm_head.weight", 2, 4}});
  EXPECT_THAT(error(folder, ScoreTokens{.relevant = 4}), HasSubstr("row 4"));
  EXPECT_THAT(error(folder, ScoreTokens{.relevant = 1, .irrelevant = 9}), HasSubstr("row 9"));
  EXPECT_THAT(error(folder, std::nullopt), HasSubstr("score.weight"));
  EXPECT_THAT(error(Folder({{"score.weight", 2, 3}}), std::nullopt), HasSubstr("3 labels"));
  EXPECT_THAT(error(Folder({{"score.weight", 2, 1, 7}}), std::nullopt), HasSubstr("[1, 7]"));
  EXPECT_THAT(error(Folder({{"model.embed_tokens.weight", 2, 4}}), ScoreTokens{.relevant = 0}),
              HasSubstr("the head, lm_head.weight, is missing"))
      << "the model is not tied";
}

}  // namespace
}  // namespace continuo::embedding
