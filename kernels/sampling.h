// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace continuo::kernels {

struct LogitBias {
  int32_t token_id = 0;
  float bias = 0;
};

// A token that occurred: in the prompt only (answer_count 0) or answer_count times in the answer.
struct SeenToken {
  int32_t token_id = 0;
  int32_t answer_count = 0;
};

// How one token comes from its row of logits, whoever draws it. NaN among the logits
// counts as -infinity, +infinity as the largest finite number. Then in this order:
//
//   mask: what it does not allow becomes -infinity; bias: added; penalties of each seen token: a
//   logit above 0 is divided by the repetition penalty, others are multiplied by it; if it is in
//   the answer, the presence penalty and answer_count frequency penalties are taken away. Bias and
//   penalties end at the largest finite number.
//   temperature 0: the largest logit. Else weights e^((logit - max) / temperature), ExactExp in
//   float. top_k keeps the largest logits, min_p the weights from it on, top_p the shortest run of
//   weights, heaviest first, whose sum reaches it times the sum of all that the others left. Drawn
//   is the first kept token, by ascending id, at which the running sum exceeds uniform · sum.
//
// Of equals the lower id is first everywhere. Sums are in double. Over the whole vocabulary: blocks
// of kSumBlock weights by four lanes, weight i of a block to lane i % 4, what is left over of a
// block to lane 0; (0 + 1) + (2 + 3); blocks in ascending order. Over what filters kept: one by
// one, by ascending id, for top_p by descending weight; the sum that top_p is of is, after top_k,
// by descending weight, after min_p alone by ascending id.
//
// Where everything is -infinity the lowest id that the mask allows is drawn, 0 if it allows none.
struct TokenDraw {
  double uniform = 0;   // in [0, 1)
  int32_t row = 0;      // of the logits
  int32_t target = -1;  // not -1: this token is scored, nothing is drawn
  float temperature = 1;
  int32_t top_k = 0;  // 0: all
  float top_p = 1;    // 1: all
  float min_p = 0;    // at most 1
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  // Of the batch's biases and seen tokens: this draw's, ids ascending and distinct.
  int32_t bias_begin = 0, bias_end = 0;
  int32_t seen_begin = 0, seen_end = 0;
  // Not -1: the token of this row, of those that DrawTokens gets, is once more in the answer than
  // the seen ones say. For penalties.
  int32_t answered_row = -1;
  int32_t mask = -1;              // which of the batch's masks; -1: none
  int32_t num_alternatives = -1;  // how many of the largest logits are told; -1: no score
};

inline constexpr int kSumBlock = 1024;
inline constexpr int kMaxAlternatives = 20;
inline constexpr int kMaxDraws = 256;  // of a batch

struct TokenLogit {
  int32_t token_id = 0;
  float logit = 0;
};

// What a device tells of a draw. Logits are those of the model, before mask, bias and penalties.
struct DrawnToken {
  int32_t token_id = -1;  // drawn or the target; -1: left to the host
  float logit = 0;        // of that token
  // Where a score is wanted: the largest logit, the sum of e^(logit - max_logit) over the
  // vocabulary (0 where the largest is -infinity), and the largest logits above -infinity, in
  // order; num_alternatives -1: none is wanted, or it is left to the host.
  float max_logit = 0;
  int32_t num_alternatives = -1;
  double sum = 0;
  TokenLogit alternatives[kMaxAlternatives];
};

// Views.
struct DrawBatch {
  std::span<const TokenDraw> draws;  // at most kMaxDraws
  std::span<const LogitBias> biases;
  std::span<const SeenToken> seen;
  // [masks, (vocabulary + 31) / 32]: bit id % 32 of word id / 32.
  std::span<const uint32_t> masks;
};

}  // namespace continuo::kernels
