// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

namespace continuo::server {

// The worker's source of randomness: ids, seeds and secrets that the server chooses. Seeded by the
// operating system. Thread-safe.
class RandomBits {
 public:
  RandomBits();
  ~RandomBits();

  uint64_t Next();

 private:
  struct State;  // keeps a costly header out of this one
  const std::unique_ptr<State> state_;
};

}  // namespace continuo::server
