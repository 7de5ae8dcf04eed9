// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/collectives/nccl_communicator.h"
#include "kernels/cuda/runtime/stream.h"
#include "kernels/tensor.h"
#include "services/base/status_macros.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"
#include "tests/testing/manual_clock.h"

namespace continuo::kernels::cuda {

// A tensor with its memory. The shim's memory is the host's, so any address will do.
template <typename T>
struct Array {
  Array(int64_t rows_, int64_t cols_) : rows(rows_), cols(cols_), values(rows_ * cols_) {}
  operator Tensor() {
    return {.data = values.data(),
            .dtype = sizeof(T) == 4 ? DType::kF32 : DType::kBF16,
            .shape = {rows, cols, 1}};
  }
  int64_t rows, cols;
  std::vector<T> values;
};

// Returns when the rank's watching thread has polled everything enqueued before. Called by the
// rank's thread, whose own calls ask NCCL as well.
inline void AwaitPolls(const NcclCommunicator& c, const Stream& stream) {
  const auto looks = [&] {
    return testing::CudaShim::NumCalls(stream.device(), "ncclCommGetAsyncError");
  };
  for (const int before = looks(); looks() < before + 2 && c.status().ok();) {
    std::this_thread::yield();
  }
}

// The ranks of a replica, rank i on cuda:i. Each is a thread with a stream and a communicator. Time
// stands still unless a test advances it.
class NcclHarness {
 public:
  using Body = std::function<absl::Status(NcclCommunicator&, Stream&)>;

  static testing::ShimOptions Devices(int size, int in_progress_polls = 0) {
    return {.devices = std::vector<testing::ShimDevice>(static_cast<size_t>(size)),
            .in_progress_polls = in_progress_polls};
  }

  explicit NcclHarness(int size, NcclOptions options = {})
      : size_(size), options_(std::move(options)) {
    options_.clock = &clock;
    options_.on_stuck = [this](const absl::Status& status) {
      const std::lock_guard lock(mutex_);
      stuck_.emplace_back(status.message());
    };
    if (options_.scratch_bytes > 4096) options_.scratch_bytes = 4096;
  }

  // Returns the first error of each rank.
  std::vector<absl::Status> Run(const Body& body) {
    Start(body);
    return Finish();
  }

  void Start(const Body& body) {
    running_ = size_;
    statuses_.assign(size_, absl::OkStatus());
    absl::StatusOr<std::shared_ptr<NcclGroup>> group = NcclGroup::Make(size_, options_);
    if (!group.ok()) {
      statuses_.assign(size_, group.status());
      running_ = 0;
      return;
    }
    group_ = *std::move(group);
    for (int rank = 0; rank < size_; ++rank) {
      threads_.emplace_back([this, rank, body] {
        statuses_[rank] = RunRank(rank, body);
        --running_;
      });
    }
  }

  // Lets time pass until a rank fails or all have returned.
  std::vector<absl::Status> FinishWhileTimePasses() {
    while (running_ > 0 && failure().ok()) {
      clock.Advance(absl::Milliseconds(50));
      std::this_thread::yield();
    }
    return Finish();
  }

  std::vector<absl::Status> Finish() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return statuses_;
  }

  // The failure of the last Run; OK if no rank failed.
  absl::Status failure() const { return group_ == nullptr ? statuses_[0] : group_->failure(); }
  int running() const { return running_; }
  std::vector<std::string> stuck() {
    const std::lock_guard lock(mutex_);
    return stuck_;
  }

  ManualClock clock;

 private:
  absl::Status RunRank(int rank, const Body& body) {
    absl::StatusOr<Stream> stream = Stream::Make(rank);
    if (!stream.ok()) {
      group_->Fail(stream.status());
      return stream.status();
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<NcclCommunicator> communicator,
                     NcclCommunicator::Make(group_, rank, rank, *stream));
    absl::Status status = body(*communicator, *stream);
    status.Update(stream->Synchronize());
    status.Update(communicator->status());
    // RankGroup does the same.
    if (!status.ok()) group_->Fail(status);
    return status;
  }

  const int size_;
  NcclOptions options_;
  std::shared_ptr<NcclGroup> group_;
  std::vector<std::thread> threads_;
  std::vector<absl::Status> statuses_;
  std::atomic<int> running_{0};
  std::mutex mutex_;
  std::vector<std::string> stuck_;  // guarded by mutex_
};

}  // namespace continuo::kernels::cuda
