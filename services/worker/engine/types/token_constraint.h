// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace continuo::engine {

// Restricts what one sequence may say. Its state is a function of the ids that it has accepted and
// of nothing else (exactness: parser-of-ids). Once its request is submitted, only the engine thread
// uses it, and destroys it.
//
// The engine accepts every id of the answer but stop ids that end it, and asks for a mask wherever
// it samples. Ids in Request::stop_ids may come exactly where CanEnd, whatever else they are: the
// engine does that part, FillMask may leave them out of account.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Returns false if any id may come next, because a thought is open, for instance. No mask is
  // needed then, and CanEnd and MustEnd do not count.
  virtual bool Restricts() = 0;
  // Clears the bits of ids that must not come next, bit id % 32 of word id / 32; sets none. Ids
  // that are no tokens (a model's vocabulary may be larger than its tokenizer's) must not come
  // either. Runs while a GPU or several CPU ranks compute, and after the layers of a single CPU
  // rank.
  virtual void FillMask(std::span<uint32_t> mask) = 0;
  // Returns whether the answer may end here.
  virtual bool CanEnd() = 0;
  // Returns whether only an end may come: FillMask leaves nothing. The engine finishes the sequence
  // with kStop after the token before, without sampling an end token, also before min_tokens and
  // with ignore_eos. That token's text counts: it is none of stop_ids.
  virtual bool MustEnd() = 0;
  // Goes on behind `id`. Returns false and changes nothing if FillMask does not allow it, or after
  // a failure.
  virtual bool Accept(int32_t id) = 0;
  // Takes the last `count` accepted ids back: they were drafts. `count` may be 0.
  virtual void Rollback(int count) = 0;
  // Returns OK, or why the constraint cannot go on, such as a limit of work (never of time) that
  // FillMask or Accept has passed. The request then ends with this error. A failure is part of the
  // state: drafts must not end a request, so Rollback takes back a failure that came since the ids
  // that are left, and the same call at the same place fails again. Only a limit of work may be met
  // some ids earlier or later after a continuation, whose constraint has made no masks before.
  virtual absl::Status status() = 0;
};

}  // namespace continuo::engine
