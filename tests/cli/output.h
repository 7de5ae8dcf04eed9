// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <streambuf>
#include <string>

#include "absl/synchronization/mutex.h"

namespace continuo::testing {

// Collects the output and lets another thread wait for a part of it.
class Output : public std::streambuf {
 public:
  std::string str() const {
    absl::MutexLock lock(&mutex_);
    return text_;
  }
  void clear() {
    absl::MutexLock lock(&mutex_);
    text_.clear();
  }
  ptrdiff_t Count(char c) const {
    const std::string text = str();
    return std::count(text.begin(), text.end(), c);
  }
  void Await(char c, ptrdiff_t times) const {
    const auto there = [&] { return std::count(text_.begin(), text_.end(), c) >= times; };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&there));
  }

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    absl::MutexLock lock(&mutex_);
    text_.append(text, static_cast<size_t>(size));
    return size;
  }
  int_type overflow(int_type c) override {
    absl::MutexLock lock(&mutex_);
    text_ += static_cast<char>(c);
    return c;
  }

 private:
  mutable absl::Mutex mutex_;
  std::string text_;
};

}  // namespace continuo::testing
