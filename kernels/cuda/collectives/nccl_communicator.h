// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cuda_runtime_api.h"
#include "kernels/communicator.h"
#include "kernels/cuda/collectives/nccl_group.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/stream.h"
#include "nccl.h"

namespace continuo::kernels::cuda {

// One rank's collectives, by NCCL, on the stream of its Backend. Made and used by the rank's
// thread, which waits for the device elsewhere; a second thread per rank watches. A failure of any
// rank, an error that NCCL reports later and a stream that stands still behind a collective for
// NcclOptions::hang_limit become the group's failure:
// all ranks' communicators are aborted, what waits in a collective comes back with undefined
// output, later calls do nothing, and status() is that failure on every rank. Collectives may be
// part of what GraphCache captures: then all ranks' graphs end before the first communicator, since
// the last one's end waits for them, and none is launched after a failure.
class NcclCommunicator : public Communicator {
 public:
  // Returns when all ranks are connected and have added a number, or with the group's failure
  // (DeadlineExceeded after hang_limit). `stream` is of `device` and outlives the result.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Make(std::shared_ptr<NcclGroup> group,
                                                                int rank, int device,
                                                                const Stream& stream);
  // Its rank's stream is idle, or the group has failed. All ranks' are destroyed, in any order; the
  // last one ends NCCL's part of all.
  ~NcclCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  void AllReduceSum(Tensor x) override;
  void AllGather(Tensor out, Tensor part, std::span<const int64_t> column_begin) override;
  void Abort() override;
  absl::Status status() const override { return group_->failure(); }

 private:
  // What of NCCL outlives the object where NCCL hangs.
  struct Comm {
    std::mutex mutex;           // held for every call of NCCL with `comm`
    ncclComm_t comm = nullptr;  // none before it joins and after its end
    bool in_call = false;       // NCCL's thread is enqueueing; guarded by mutex
    std::atomic<bool> ends{false}, aborted{false};
  };
  using NcclCall = absl::FunctionRef<ncclResult_t(ncclComm_t)>;

  NcclCommunicator(std::shared_ptr<NcclGroup> group, int rank, int device, const Stream& stream)
      : group_(std::move(group)), rank_(rank), device_(device), stream_(stream) {}

  absl::Status Init();
  absl::Status Join();
  absl::Status Connect();
  // One call that enqueues a collective, between two meetings of all ranks.
  absl::Status Call(absl::string_view what, NcclCall call);
  // The call, until it is no longer in progress.
  absl::Status Enqueue(absl::string_view what, NcclCall call);
  absl::Status Sum(float* data, int64_t n);
  absl::Status SumInTree(float* data, int64_t n);
  absl::Status Gather(Tensor out, Tensor part, std::span<const int64_t> column_begin);
  absl::Status Broadcasts(const char* part, int64_t rows, size_t width,
                          std::span<const int64_t> column_begin);

  void Watch();
  absl::Status CheckOnce();
  absl::Status CheckStream();
  absl::Status Mark();
  void EndAfterFailure();
  void AwaitAbort();
  void TellStuck();

  // What may have put collectives on the stream: calls, of which those of a capture have not, and
  // graphs. Any thread.
  int64_t num_enqueued() const { return num_called_ + stream_.num_graphs(); }
  absl::Duration hang_limit() const { return group_->options().hang_limit; }
  absl::Status NcclStatus(ncclResult_t result, absl::string_view what, ncclComm_t comm) const;
  std::string Name() const;  // "rank 1 on cuda:1"

  const std::shared_ptr<NcclGroup> group_;
  const int rank_, device_;
  const Stream& stream_;
  const std::shared_ptr<Comm> comm_ = std::make_shared<Comm>();
  DeviceBuffer scratch_;
  std::atomic<int64_t> num_called_{0};  // collectives
  std::atomic<bool> stopping_{false};

  // Of the watching thread, and of the destructor after it.
  std::optional<Event> mark_;  // behind the collectives enqueued when it was recorded
  bool mark_pending_ = false;
  int64_t num_marked_ = 0;  // of num_enqueued()
  absl::Duration marked_at_;
  std::thread watcher_;
  std::thread aborter_;  // begun by EndAfterFailure
};

}  // namespace continuo::kernels::cuda
