// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace continuo::kernels {

struct LogitBias {
  int32_t token_id = 0;
  float bias = 0;
};

// A token that occurred: in the prompt only (answer_count 0), or answer_count times in the answer.
struct SeenToken {
  int32_t token_id = 0;
  int32_t answer_count = 0;
};

// Says how one token is sampled from its row of logits, by the device or by the host. NaN among the
// logits counts as -infinity, +infinity as the largest finite number. The steps, in this order:
//
//   mask: a token that it does not allow gets -infinity. bias: added. penalties of each seen token:
//   a logit above 0 is divided by the repetition penalty, another one is multiplied by it; if the
//   token is in the answer, the presence penalty and answer_count frequency penalties are
//   subtracted. Bias and penalties saturate at the largest finite number. temperature 0: the
//   largest logit is sampled. Else tokens have weights e^((logit - max) / temperature), ExactExp in
//   float. top_k keeps the largest logits, min_p the weights from it on, top_p the shortest run of
//   weights, heaviest first, whose sum reaches top_p times the sum of all that the others kept. The
//   sample is the first kept token, by ascending id, at which the running sum exceeds uniform ·
//   sum.
//
// Among equal values the lower id comes first everywhere. Sums are in double. Over the whole
// vocabulary they run in blocks of kSumBlock weights by four lanes: weight i of a block goes to
// lane i % 4, the rest of a block to lane 0; the lanes are added (0 + 1) + (2 + 3), and blocks in
// ascending order. Over what filters kept they run one by one, by ascending id, for top_p by
// descending weight; the sum that top_p is a part of runs, after top_k, by descending weight, and
// after min_p alone by ascending id.
//
// If everything is -infinity, the lowest id that the mask allows is sampled, or 0 if it allows
// none.
struct SampleRequest {
  double uniform = 0;   // in [0, 1)
  int32_t row = 0;      // of the logits
  int32_t target = -1;  // not -1: this token is scored, and nothing is sampled
  float temperature = 1;
  int32_t top_k = 0;  // 0: all
  float top_p = 1;    // 1: all
  float min_p = 0;    // at most 1
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  // This request's part of the batch's biases and seen tokens; their ids ascend and are distinct.
  int32_t bias_begin = 0, bias_end = 0;
  int32_t seen_begin = 0, seen_end = 0;
  // Not -1: for penalties, the token of this row of SampleTokens' row_tokens is in the answer once
  // more than the seen ones say.
  int32_t answered_row = -1;
  int32_t mask = -1;              // which of the batch's masks; -1: none
  int32_t num_alternatives = -1;  // how many of the largest logits to report; -1: no score
};

inline constexpr int kSumBlock = 1024;
inline constexpr int kMaxAlternatives = 20;
inline constexpr int kMaxSamples = 256;  // of a batch

struct TokenLogit {
  int32_t token_id = 0;
  float logit = 0;
};

// The result of a request on a device. Logits are the model's, before mask, bias and penalties.
struct SampledToken {
  int32_t token_id = -1;  // the sample or the target; -1: the request is left to the host
  float logit = 0;        // of that token
  // The score, where the request asks for one: the largest logit, the sum of e^(logit - max_logit)
  // over the vocabulary (0 where the largest is -infinity), and the largest logits above -infinity,
  // in order. num_alternatives is -1 where there is none, or it is left to the host.
  float max_logit = 0;
  int32_t num_alternatives = -1;
  double sum = 0;
  TokenLogit alternatives[kMaxAlternatives];
};

// The requests of a step and the arrays that they refer to. Views.
struct SampleBatch {
  std::span<const SampleRequest> requests;  // at most kMaxSamples
  std::span<const LogitBias> biases;
  std::span<const SeenToken> seen;
  // [masks, (vocabulary + 31) / 32]: bit id % 32 of word id / 32.
  std::span<const uint32_t> masks;
};

}  // namespace continuo::kernels
