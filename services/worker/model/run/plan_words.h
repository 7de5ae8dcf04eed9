// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/model/step_plan.h"

namespace continuo::model {

// The arrays of a plan that go to a device, joined into one, so that they are one copy. A padded
// step (step_shape.h) has more sequences, of one row and one token in a spare block, and more
// columns of the block table. Keeps its memory from step to step.
class PlanWords {
 public:
  struct Padding {
    int num_sequences = 0;  // to add
    int columns = 1;        // of the block table: at least the plan's
    int spare_block = 0;    // where the added sequences write
  };
  struct Part {
    size_t begin = 0, size = 0;  // in words()
  };

  // With `has_token_types` each row's is among the words, whether the plan names any or not.
  explicit PlanWords(bool has_token_types = false) : has_token_types_(has_token_types) {}

  // `wanted_rows` are the rows whose logits samples read.
  void Set(const StepPlan& plan, std::span<const int32_t> wanted_rows, int block_size,
           const Padding& padding);

  std::span<const int32_t> words() const { return words_; }
  Part token_ids() const { return parts_[0]; }
  Part positions() const { return parts_[1]; }
  Part kv_slots() const { return parts_[2]; }
  Part kv_len() const { return parts_[3]; }
  Part query_begin() const { return parts_[4]; }
  Part wanted_rows() const { return parts_[5]; }
  // Empty where the plan names no states; added sequences have none.
  Part state_from() const { return parts_[7]; }
  Part state_to() const { return parts_[8]; }
  Part block_tables() const { return parts_[6]; }  // [sequences, columns]
  Part hidden_rows() const { return parts_[9]; }   // empty but in a step of the MTP module
  Part token_types() const { return parts_[10]; }  // empty without has_token_types

 private:
  void Begin(size_t part);
  void End(size_t part) { parts_[part].size = words_.size() - parts_[part].begin; }

  bool has_token_types_;
  std::vector<int32_t> words_;
  std::array<Part, 11> parts_;
};

}  // namespace continuo::model
