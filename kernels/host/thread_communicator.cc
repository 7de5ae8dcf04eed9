// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/thread_communicator.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "kernels/host/float_state.h"
#include "kernels/host/spin_wait.h"
#include "services/base/check.h"

namespace continuo::kernels::host {
namespace {

constexpr int kMaxRanks = 8;

// The state that the ranks of one replica share.
class Group {
 public:
  explicit Group(int size) : size_(size) {}

  int size() const { return size_; }
  bool aborted() const { return aborted_.load(); }

  void Abort() {
    aborted_.store(true);
    generation_.fetch_add(1);
    generation_.notify_all();
  }

  // Shows `t` to the other ranks from the next Barrier on.
  void Show(int rank, const Tensor& t) { shown_[rank] = t; }
  const Tensor& Shown(int rank) const { return shown_[rank]; }

  // Returns true when every rank has called it, and false after Abort.
  bool Barrier() {
    const uint32_t generation = generation_.load();
    if (aborted()) return false;
    if (num_arrived_.fetch_add(1) + 1 == size_) {
      num_arrived_.store(0);
      generation_.fetch_add(1);
      generation_.notify_all();
    } else {
      host::WaitForChange(generation_, generation);
    }
    return !aborted();
  }

  // Between the two calls a rank touches tensors that others have shown. A rank that leaves a
  // collective early because of Abort waits in WaitUntilUntouched, so that its tensors are not used
  // afterwards.
  bool BeginTouching() {
    num_touching_.fetch_add(1);
    if (!aborted()) return true;
    EndTouching();
    return false;
  }
  void EndTouching() { num_touching_.fetch_sub(1); }
  void WaitUntilUntouched() {
    host::Spinner spinner;
    while (num_touching_.load() != 0) spinner.OnceOrYield();
  }

 private:
  const int size_;
  std::atomic<bool> aborted_{false};
  std::atomic<int> num_arrived_{0};
  std::atomic<uint32_t> generation_{0};  // counts barriers
  std::atomic<int> num_touching_{0};
  Tensor shown_[kMaxRanks];
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void AllReduceSum(Tensor x) override {
    CONTINUO_CHECK(x.dtype == DType::kF32);
    if (size() == 1) return;
    Exchange(x, [&] {
      // Each rank adds one slice for all ranks.
      const int64_t begin = x.size() * rank_ / size(), end = x.size() * (rank_ + 1) / size();
      const host::FloatState float_state;
      float* ranks[kMaxRanks];
      for (int r = 0; r < size(); ++r) {
        CONTINUO_CHECK(group_->Shown(r).size() == x.size());
        ranks[r] = static_cast<float*>(group_->Shown(r).data);
      }
      for (int64_t at = begin; at < end; at += kRun) AddRun(ranks, at, std::min(kRun, end - at));
    });
  }

  void AllGather(Tensor out, Tensor part, std::span<const int64_t> column_begin) override {
    CONTINUO_CHECK(column_begin.size() == static_cast<size_t>(size()) + 1);
    CONTINUO_CHECK(out.cols() == column_begin.back() && out.rows() == part.rows());
    CONTINUO_CHECK(out.dtype == part.dtype);
    CONTINUO_CHECK(part.cols() == column_begin[rank_ + 1] - column_begin[rank_]);
    Exchange(part, [&] {
      const size_t width = SizeOf(out.dtype);
      for (int r = 0; r < size(); ++r) {
        const Tensor& from = group_->Shown(r);
        const int64_t cols = column_begin[r + 1] - column_begin[r];
        CONTINUO_CHECK(from.rows() == out.rows() && from.dtype == out.dtype);
        CONTINUO_CHECK(from.cols() == cols);
        if (cols == 0) continue;
        for (int64_t row = 0; row < out.rows(); ++row) {
          std::memcpy(static_cast<char*>(out.data) + (row * out.cols() + column_begin[r]) * width,
                      static_cast<const char*>(from.data) + row * cols * width, cols * width);
        }
      }
    });
  }

  void Abort() override { group_->Abort(); }

  absl::Status status() const override {
    return group_->aborted() ? absl::AbortedError("a rank of this replica failed")
                             : absl::OkStatus();
  }

 private:
  static constexpr int64_t kRun = 1024;

  // Shows `mine` to the other ranks and runs `work` between two barriers.
  template <typename Work>
  void Exchange(const Tensor& mine, Work work) {
    group_->Show(rank_, mine);
    if (group_->Barrier() && group_->BeginTouching()) {
      work();
      group_->EndTouching();
    }
    if (!group_->Barrier()) group_->WaitUntilUntouched();
  }

  // ranks[…][at, at + n) = their sum in a balanced tree: neighbours first.
  void AddRun(float* const* ranks, int64_t at, int64_t n) {
    float sums[kMaxRanks / 2][kRun];
    int count = size() / 2;
    for (int r = 0; r < count; ++r) {
      const float* a = ranks[2 * r] + at;
      const float* b = ranks[2 * r + 1] + at;
      for (int64_t i = 0; i < n; ++i) sums[r][i] = a[i] + b[i];
    }
    for (; count > 1; count /= 2) {
      for (int r = 0; r < count / 2; ++r) {
        for (int64_t i = 0; i < n; ++i) sums[r][i] = sums[2 * r][i] + sums[2 * r + 1][i];
      }
    }
    for (int r = 0; r < size(); ++r) std::memcpy(ranks[r] + at, sums[0], n * sizeof(float));
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(int size) {
  CONTINUO_CHECK(size == 1 || size == 2 || size == 4 || size == 8);
  const auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<ThreadCommunicator>(group, rank));
  }
  return ranks;
}

}  // namespace continuo::kernels::host
