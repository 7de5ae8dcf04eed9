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

// One rank's collectives by NCCL, on the stream of its device. The rank's thread makes and uses it,
// and waits for the device elsewhere. A second thread for each rank watches.
//
// These become the group's failure: a failure of any rank, an error that NCCL reports later, and a
// stream that stands still behind a collective for NcclOptions::hang_limit. All ranks'
// communicators are then aborted, what waits in a collective returns with undefined output, later
// calls do nothing, and status() is that failure on every rank.
//
// Collectives may be captured in graphs (GraphCache). All ranks' graphs then have to end before the
// first communicator, since the last one's end waits for them, and none may be launched after a
// failure.
class NcclCommunicator : public Communicator {
 public:
  // Returns when all ranks are connected and have added a number, or with the group's failure
  // (DeadlineExceeded after hang_limit). `stream` belongs to `device` and outlives the result.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Make(std::shared_ptr<NcclGroup> group,
                                                                int rank, int device,
                                                                const Stream& stream);
  // Requires that the rank's stream is idle or the group has failed. Ranks are destroyed in any
  // order; the last one ends NCCL's part of all.
  ~NcclCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  void AllReduceSum(Tensor x) override;
  void AllGather(Tensor out, Tensor part, std::span<const int64_t> column_begin) override;
  void Abort() override;
  absl::Status status() const override { return group_->failure(); }

 private:
  // Outlives the object where NCCL hangs.
  struct Comm {
    std::mutex mutex;           // held for every call of NCCL with `comm`
    ncclComm_t comm = nullptr;  // null before joining and after the end
    bool in_call = false;       // NCCL's thread is enqueueing; guarded by mutex
    std::atomic<bool> ends{false}, aborted{false};
  };
  using NcclCall = absl::FunctionRef<ncclResult_t(ncclComm_t)>;

  NcclCommunicator(std::shared_ptr<NcclGroup> group, int rank, int device, const Stream& stream)
      : group_(std::move(group)), rank_(rank), device_(device), stream_(stream) {}

  absl::Status Init();
  absl::Status Join();
  absl::Status Connect();
  // Makes one call that enqueues a collective, between two barriers of all ranks.
  absl::Status Call(absl::string_view what, NcclCall call);
  // Makes the call and polls until it is no longer in progress.
  absl::Status Enqueue(absl::string_view what, NcclCall call);
  absl::Status Sum(float* data, int64_t n);
  absl::Status SumInTree(float* data, int64_t n);
  absl::Status Gather(Tensor out, Tensor part, std::span<const int64_t> column_begin);
  absl::Status Broadcasts(const char* part, int64_t rows, size_t width,
                          std::span<const int64_t> column_begin);

  void Watch();
  absl::Status CheckOnce();
  absl::Status CheckStream();
  absl::Status RecordEvent();
  void EndAfterFailure();
  void AwaitAbort();
  void TellStuck();

  // Number of calls and graph launches that may have put collectives on the stream. Calls during a
  // capture count, though they put none there. Any thread may call this.
  int64_t num_enqueued() const { return num_called_ + stream_.num_graphs(); }
  absl::Duration hang_limit() const { return group_->options().hang_limit; }
  absl::Status NcclStatus(ncclResult_t result, absl::string_view what, ncclComm_t comm) const;
  std::string Name() const;  // such as "rank 1 on cuda:1"

  const std::shared_ptr<NcclGroup> group_;
  const int rank_, device_;
  const Stream& stream_;
  const std::shared_ptr<Comm> comm_ = std::make_shared<Comm>();
  DeviceBuffer scratch_;
  std::atomic<int64_t> num_called_{0};  // calls of collectives
  std::atomic<bool> stopping_{false};

  // The members below belong to the watching thread, and to the destructor after it.
  std::optional<Event> event_;  // recorded behind the collectives enqueued by then
  bool event_pending_ = false;
  int64_t num_recorded_ = 0;  // num_enqueued() at that time
  absl::Duration recorded_at_;
  std::thread watcher_;
  std::thread aborter_;  // started by EndAfterFailure
};

}  // namespace continuo::kernels::cuda
