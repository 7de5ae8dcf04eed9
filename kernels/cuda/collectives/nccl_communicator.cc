// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/collectives/nccl_communicator.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/collectives/tree_sum.h"
#include "kernels/cuda/runtime/cuda_status.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {
namespace {

// Pause between polls of work that goes on by itself. A call that enqueues ends soon, since NCCL
// hands it to a thread.
constexpr absl::Duration kCallPeriod = absl::Microseconds(100);
constexpr int kSpinningPolls = 200;
// The number of polls of a call that is still in progress after a failure. Its thread enqueues to
// the stream, which may be captured.
constexpr int kPollsAfterFailure = 100'000;
constexpr absl::Duration kWatchPeriod = absl::Milliseconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Make(
    std::shared_ptr<NcclGroup> group, int rank, int device, const Stream& stream) {
  CONTINUO_CHECK(rank >= 0 && rank < group->size());
  std::unique_ptr<NcclCommunicator> made(
      new NcclCommunicator(std::move(group), rank, device, stream));
  if (const absl::Status status = made->Init(); !status.ok()) {
    made->group_->Fail(status);
    return made->status();
  }
  return made;
}

NcclCommunicator::~NcclCommunicator() {
  stopping_ = true;
  group_->Wake();
  if (watcher_.joinable()) watcher_.join();
  if (!group_->failure().ok()) {
    EndAfterFailure();
    AwaitAbort();
    return;
  }
  const std::lock_guard lock(comm_->mutex);
  // Nobody needs the result.
  if (comm_->comm != nullptr) (void)ncclCommDestroy(std::exchange(comm_->comm, nullptr));
}

std::string NcclCommunicator::Name() const {
  return absl::StrCat("rank ", rank_, " on cuda:", device_);
}

absl::Status NcclCommunicator::NcclStatus(ncclResult_t result, absl::string_view what,
                                          ncclComm_t comm) const {
  if (result == ncclSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(Name(), ": ", what, ": ", ncclGetErrorString(result),
                                          " (", ncclGetLastError(comm), ")"));
}

absl::Status NcclCommunicator::Init() {
  RETURN_IF_ERROR(SetDevice(device_));
  ASSIGN_OR_RETURN(scratch_, DeviceBuffer::Make(device_, group_->options().scratch_bytes));
  CONTINUO_CHECK(scratch_.bytes() >= sizeof(float));
  ASSIGN_OR_RETURN(event_, Event::Make(device_));
  RETURN_IF_ERROR(Join());
  return Connect();
}

absl::Status NcclCommunicator::Join() {
  const absl::Duration start = group_->Elapsed();
  std::unique_lock lock(comm_->mutex);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclResult_t result = ncclCommInitRankConfig(&comm_->comm, size(), group_->id(), rank_, &config);
  while (true) {
    if (result != ncclInProgress) return NcclStatus(result, "ncclCommInitRankConfig", comm_->comm);
    if (group_->Elapsed() - start > hang_limit()) {
      return absl::DeadlineExceededError(absl::StrCat(Name(), ": the ", size(),
                                                      " ranks have not joined within ",
                                                      absl::FormatDuration(hang_limit())));
    }
    lock.unlock();
    group_->Pause(kCallPeriod);
    RETURN_IF_ERROR(group_->failure());
    lock.lock();
    RETURN_IF_ERROR(NcclStatus(ncclCommGetAsyncError(comm_->comm, &result), "ncclCommGetAsyncError",
                               comm_->comm));
  }
}

// NCCL connects ranks when they first communicate.
absl::Status NcclCommunicator::Connect() {
  watcher_ = std::thread([this] { Watch(); });
  RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(scratch_.data(), 0, sizeof(float), stream_.get()),
                             device_, "cudaMemsetAsync"));
  ASSIGN_OR_RETURN(Event connected, Event::Make(device_));
  // The watcher sees nothing before the first collective.
  if (const absl::Status met = group_->Barrier(hang_limit()); !met.ok()) {
    RETURN_IF_ERROR(group_->failure());
    return absl::Status(met.code(), absl::StrCat(Name(), ": ", met.message()));
  }
  RETURN_IF_ERROR(Sum(static_cast<float*>(scratch_.data()), 1));
  RETURN_IF_ERROR(connected.Record(stream_.get()));
  while (true) {
    RETURN_IF_ERROR(group_->failure());
    ASSIGN_OR_RETURN(const bool done, connected.Done());
    if (done) return absl::OkStatus();
    group_->Pause(kCallPeriod);
  }
}

// The kernel of a collective ends when those of all ranks have started. What another rank does for
// the first time meanwhile may wait for a device and hold what this process needs to launch
// anything: loading a kernel, cudaMalloc, cudaFree, capturing a graph. So all ranks wait at a
// barrier before they enqueue a collective, and again when they have.
absl::Status NcclCommunicator::Call(absl::string_view what, NcclCall call) {
  RETURN_IF_ERROR(group_->Barrier());
  RETURN_IF_ERROR(Enqueue(what, call));
  return group_->Barrier();
}

absl::Status NcclCommunicator::Enqueue(absl::string_view what, NcclCall call) {
  const absl::Duration start = group_->Elapsed();
  std::unique_lock lock(comm_->mutex);
  RETURN_IF_ERROR(group_->failure());
  comm_->in_call = true;
  ncclResult_t result = call(comm_->comm);
  absl::Status status;
  int polls_left = kPollsAfterFailure;
  for (int poll = 0; result == ncclInProgress && polls_left > 0; ++poll) {
    if (status.ok()) status = group_->failure();
    if (status.ok() && group_->Elapsed() - start > hang_limit()) {
      status = absl::DeadlineExceededError(absl::StrCat(
          Name(), ": ", what, " has been in progress for ", absl::FormatDuration(hang_limit())));
    }
    polls_left -= status.ok() ? 0 : 1;
    lock.unlock();
    if (poll < kSpinningPolls || !status.ok()) {
      std::this_thread::yield();
    } else {
      group_->Pause(kCallPeriod);
    }
    lock.lock();
    const absl::Status asked = NcclStatus(ncclCommGetAsyncError(comm_->comm, &result),
                                          "ncclCommGetAsyncError", comm_->comm);
    if (!asked.ok()) {
      status.Update(asked);
      break;
    }
  }
  ++num_called_;
  if (status.ok()) status = NcclStatus(result, what, comm_->comm);
  comm_->in_call = false;
  return status;
}

absl::Status NcclCommunicator::Sum(float* data, int64_t n) {
  return Call("ncclAllReduce", [&](ncclComm_t comm) {
    return ncclAllReduce(data, data, static_cast<size_t>(n), ncclFloat32, ncclSum, comm,
                         stream_.get());
  });
}

absl::Status NcclCommunicator::SumInTree(float* data, int64_t n) {
  auto* parts = static_cast<float*>(scratch_.data());
  const auto count_at_once = static_cast<int64_t>(scratch_.bytes() / sizeof(float)) / size();
  CONTINUO_CHECK(count_at_once > 0);
  for (int64_t begin = 0; begin < n; begin += count_at_once) {
    const int64_t count = std::min(count_at_once, n - begin);
    RETURN_IF_ERROR(Call("ncclAllGather", [&](ncclComm_t comm) {
      return ncclAllGather(data + begin, parts, static_cast<size_t>(count), ncclFloat32, comm,
                           stream_.get());
    }));
    RETURN_IF_ERROR(CudaStatus(AddTrees(data + begin, parts, size(), count, stream_.kernels()),
                               device_, "AddTrees"));
  }
  return absl::OkStatus();
}

void NcclCommunicator::AllReduceSum(Tensor x) {
  CONTINUO_CHECK(x.dtype == DType::kF32);
  if (x.size() == 0 || !group_->failure().ok()) return;
  auto* data = static_cast<float*>(x.data);
  const absl::Status status =
      group_->options().tree_order ? SumInTree(data, x.size()) : Sum(data, x.size());
  if (!status.ok()) group_->Fail(status);
}

// Each rank's rows arrive one after the other in scratch, then are copied to their columns.
absl::Status NcclCommunicator::Gather(Tensor out, Tensor part,
                                      std::span<const int64_t> column_begin) {
  const size_t width = SizeOf(out.dtype), row_bytes = static_cast<size_t>(out.cols()) * width;
  const auto rows_at_once = static_cast<int64_t>(scratch_.bytes() / row_bytes);
  if (rows_at_once == 0) {
    return absl::InternalError(absl::StrCat(Name(), ": a gathered row has ", row_bytes,
                                            " bytes, the communicator's scratch ",
                                            scratch_.bytes()));
  }
  for (int64_t begin = 0; begin < out.rows(); begin += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, out.rows() - begin);
    const auto* from =
        static_cast<const char*>(part.data) + static_cast<size_t>(begin * part.cols()) * width;
    RETURN_IF_ERROR(Broadcasts(from, rows, width, column_begin));
    for (int r = 0; r < size(); ++r) {
      const size_t bytes = static_cast<size_t>(column_begin[r + 1] - column_begin[r]) * width;
      if (bytes == 0) continue;
      const size_t column = static_cast<size_t>(column_begin[r]) * width;
      RETURN_IF_ERROR(CudaStatus(
          cudaMemcpy2DAsync(
              static_cast<char*>(out.data) + static_cast<size_t>(begin) * row_bytes + column,
              row_bytes, static_cast<const char*>(scratch_.data()) + column * rows, bytes, bytes,
              static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, stream_.get()),
          device_, "cudaMemcpy2DAsync"));
    }
  }
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Broadcasts(const char* part, int64_t rows, size_t width,
                                          std::span<const int64_t> column_begin) {
  auto* scratch = static_cast<char*>(scratch_.data());
  return Call("ncclGroupStart, ncclBroadcast, ncclGroupEnd", [&](ncclComm_t comm) {
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) return result;
    for (int r = 0; r < size() && result == ncclSuccess; ++r) {
      const size_t bytes =
          static_cast<size_t>((column_begin[r + 1] - column_begin[r]) * rows) * width;
      if (bytes == 0) continue;
      const size_t at = static_cast<size_t>(column_begin[r] * rows) * width;
      result = ncclBroadcast(part, scratch + at, bytes, ncclUint8, r, comm, stream_.get());
    }
    const ncclResult_t ended = ncclGroupEnd();  // after an error, too, since the group has started
    return result == ncclSuccess ? ended : result;
  });
}

void NcclCommunicator::AllGather(Tensor out, Tensor part, std::span<const int64_t> column_begin) {
  CONTINUO_CHECK(column_begin.size() == static_cast<size_t>(size()) + 1);
  CONTINUO_CHECK(out.cols() == column_begin.back() && out.rows() == part.rows());
  CONTINUO_CHECK(out.dtype == part.dtype);
  CONTINUO_CHECK(part.cols() == column_begin[rank_ + 1] - column_begin[rank_]);
  if (out.size() == 0 || !group_->failure().ok()) return;
  if (const absl::Status status = Gather(out, part, column_begin); !status.ok()) {
    group_->Fail(status);
  }
}

void NcclCommunicator::Abort() {
  group_->Fail(absl::AbortedError("a rank of this replica failed"));
}

void NcclCommunicator::Watch() {
  if (const absl::Status status = SetDevice(device_); !status.ok()) group_->Fail(status);
  while (group_->failure().ok() && !stopping_) {
    if (const absl::Status status = CheckOnce(); !status.ok()) group_->Fail(status);
    group_->Pause(kWatchPeriod);
  }
  if (!group_->failure().ok()) EndAfterFailure();
}

absl::Status NcclCommunicator::CheckOnce() {
  {
    const std::lock_guard lock(comm_->mutex);
    ncclResult_t error = ncclSuccess;
    RETURN_IF_ERROR(NcclStatus(ncclCommGetAsyncError(comm_->comm, &error), "ncclCommGetAsyncError",
                               comm_->comm));
    if (error != ncclInProgress) {
      RETURN_IF_ERROR(NcclStatus(error, "what goes on in NCCL", comm_->comm));
    }
  }
  return CheckStream();
}

// Records an event behind everything enqueued since the last one, if there is anything. It records
// none while the stream is captured.
absl::Status NcclCommunicator::RecordEvent() {
  const std::unique_lock lock(stream_.capture_mutex(), std::try_to_lock);
  const int64_t enqueued = num_enqueued();
  if (!lock.owns_lock() || enqueued == num_recorded_) return absl::OkStatus();
  RETURN_IF_ERROR(event_->Record(stream_.get()));
  num_recorded_ = enqueued;
  event_pending_ = true;
  recorded_at_ = group_->Elapsed();
  return absl::OkStatus();
}

// Checks one event at a time: the rank's thread has nothing to do for it, and there is at most one
// event in a period.
absl::Status NcclCommunicator::CheckStream() {
  if (!event_pending_) RETURN_IF_ERROR(RecordEvent());
  if (!event_pending_) return absl::OkStatus();
  const absl::Duration now = group_->Elapsed();  // read first, since time passes while polling
  ASSIGN_OR_RETURN(const bool done, event_->Done());
  event_pending_ = !done;
  if (done || now - recorded_at_ <= hang_limit()) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(Name(), ": hung: a collective has not ended for ",
                                                  absl::FormatDuration(hang_limit())));
}

void NcclCommunicator::EndAfterFailure() {
  if (comm_->ends.exchange(true)) return;
  const absl::Duration start = group_->Elapsed();
  // This thread can be left behind: ncclCommAbort may hang where a device does. It frees kernels at
  // once, but the last rank's call returns when all ranks' graphs are gone.
  aborter_ = std::thread([comm = comm_, group = group_, device = device_] {
    (void)SetDevice(device);
    ncclComm_t aborted = nullptr;
    while (true) {
      {
        const std::lock_guard lock(comm->mutex);
        if (!comm->in_call) {
          aborted = std::exchange(comm->comm, nullptr);  // no thread calls it from here on
          break;
        }
      }
      std::this_thread::yield();  // the call ends soon, since the group has failed
    }
    if (aborted != nullptr) (void)ncclCommAbort(aborted);
    comm->aborted = true;
    group->Wake();
  });
  while (true) {
    // An error belongs to the failure that is being ended.
    if (!event_pending_ && !RecordEvent().ok()) return;
    if (event_pending_) event_pending_ = !event_->Done().value_or(true);
    if (!event_pending_ && num_enqueued() == num_recorded_) return;
    if (group_->Elapsed() - start > group_->options().end_limit) return TellStuck();
    group_->Pause(kWatchPeriod);
  }
}

void NcclCommunicator::AwaitAbort() {
  const absl::Duration start = group_->Elapsed();
  while (!comm_->aborted) {
    if (group_->Elapsed() - start > group_->options().end_limit) {
      aborter_.detach();
      return TellStuck();
    }
    group_->Pause(kWatchPeriod);
  }
  aborter_.join();
}

void NcclCommunicator::TellStuck() {
  const absl::Status failure = group_->failure();
  group_->options().on_stuck(absl::Status(
      failure.code(),
      absl::StrCat(failure.message(), "; ", Name(), " does not come to rest after it")));
}

}  // namespace continuo::kernels::cuda
