// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/cuda_context.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {
namespace {

// The ring holds the arrays of two steps in flight, each at most a quarter of it. Larger copies, of
// weights, are made from the caller's memory.
constexpr size_t kStagingBytes = size_t{64} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<CudaContext>> CudaContext::Make(const CudaContextOptions& options) {
  const int device = options.device.index;
  ASSIGN_OR_RETURN(Stream stream, Stream::Make(device, options.pdl));
  std::unique_ptr<CudaContext> made(new CudaContext(options, std::move(stream)));
  constexpr size_t kCounterBytes = kNumCounters * sizeof(uint32_t);
  ASSIGN_OR_RETURN(made->counters_, DeviceBuffer::Make(device, kCounterBytes));
  RETURN_IF_ERROR(
      CudaStatus(cudaMemsetAsync(made->counters(), 0, kCounterBytes, made->stream_.get()), device,
                 "cudaMemsetAsync"));
  ASSIGN_OR_RETURN(made->scratch_, DeviceBuffer::Make(device, options.scratch_bytes));
  ASSIGN_OR_RETURN(made->staging_, PinnedBuffer::Make(device, kStagingBytes));
  for (Recorded& recorded : made->events_) {
    ASSIGN_OR_RETURN(Event event, Event::Make(device));
    recorded.event.emplace(std::move(event));
  }
  return made;
}

CudaContext::~CudaContext() {
  // Memory must not be in use when it is freed. An error belongs to earlier work.
  (void)stream_.Synchronize();
}

bool CudaContext::PrepareToEnqueue() {
  if (!ok()) return false;
  Keep(SetDevice(device().index));
  BeginWork();
  return ok();
}

void* CudaContext::Scratch(size_t bytes) {
  if (bytes > scratch_.bytes() && ok()) {
    size_t wanted = bytes;
    if (graphs_.empty()) {
      Keep(stream_.Synchronize());
      scratch_ = DeviceBuffer();
    } else {
      // Graphs stay: other ranks, which may have more scratch, go on to launch theirs. Growing by
      // half at least keeps the sum of all old buffers below twice the new one.
      wanted = std::max(bytes, scratch_.bytes() / 2 * 3);
      smaller_scratch_.push_back(std::move(scratch_));
    }
    absl::StatusOr<DeviceBuffer> larger = DeviceBuffer::Make(device().index, wanted);
    Keep(larger.status());
    if (larger.ok()) scratch_ = *std::move(larger);
  }
  return bytes > scratch_.bytes() ? nullptr : scratch_.data();
}

void CudaContext::DropGraphs() {
  graphs_.Clear();
  smaller_scratch_.clear();
}

void* CudaContext::Stage(size_t bytes) {
  const uint64_t padded = (bytes + 63) / 64 * 64, size = staging_.bytes();
  uint64_t at = staged_ % size;
  if (at + padded > size) {  // a copy does not wrap around
    staged_ += size - at;
    at = 0;
  }
  if (staged_ + padded - copied_ > size) {
    Keep(Synchronize());
    if (!ok()) return nullptr;
  }
  staged_ += padded;
  return static_cast<char*>(staging_.data()) + at;
}

void CudaContext::CopyIn(Tensor dst, const void* host) {
  const size_t bytes = dst.bytes();
  if (bytes == 0 || !ok()) return;
  if (bytes <= staging_.bytes()) {
    void* const staged = Stage(bytes);
    if (staged == nullptr) return;
    std::memcpy(staged, host, bytes);
    host = staged;
  }
  Enqueue("cudaMemcpyAsync", [&] {
    return cudaMemcpyAsync(dst.data, host, bytes, cudaMemcpyHostToDevice, stream_.get());
  });
}

void CudaContext::CopyInPacked(void* dst, std::span<const PackedArray> arrays) {
  size_t bytes = 0;
  for (const PackedArray& array : arrays) {
    if (array.bytes > 0) bytes = array.offset + array.bytes;
  }
  if (bytes == 0 || !ok()) return;
  CONTINUO_CHECK(bytes <= staging_.bytes());
  auto* const staged = static_cast<char*>(Stage(bytes));
  if (staged == nullptr) return;
  for (const PackedArray& array : arrays) {
    if (array.bytes > 0) std::memcpy(staged + array.offset, array.data, array.bytes);
  }
  Enqueue("cudaMemcpyAsync", [&] {
    return cudaMemcpyAsync(dst, staged, bytes, cudaMemcpyHostToDevice, stream_.get());
  });
}

void CudaContext::CopyOut(void* host, Tensor src) {
  if (src.bytes() == 0) return;
  Enqueue("cudaMemcpyAsync", [&] {
    return cudaMemcpyAsync(host, src.data, src.bytes(), cudaMemcpyDeviceToHost, stream_.get());
  });
}

absl::Status CudaContext::Synchronize() {
  // This waits after a failure, too, since the caller's memory may be in use.
  Keep(stream_.Synchronize());
  copied_ = staged_;
  return failure_;
}

int64_t CudaContext::RecordEvent() {
  Recorded& recorded = events_[static_cast<size_t>(num_events_) % events_.size()];
  recorded.staged = staged_;
  recorded.has_begun = std::exchange(work_begun_, false);
  Keep(recorded.event->Record(stream_.get()));
  return num_events_++;
}

absl::Status CudaContext::WaitForEvent(int64_t event) {
  CONTINUO_CHECK(event < num_events_ &&
                 event + static_cast<int64_t>(events_.size()) >= num_events_);
  Recorded& recorded = events_[static_cast<size_t>(event) % events_.size()];
  Keep(recorded.event->Synchronize());
  if (!ok()) return Synchronize();  // the event may never have been recorded
  copied_ = std::max(copied_, recorded.staged);
  if (std::exchange(recorded.has_begun, false)) {
    const absl::StatusOr<double> seconds =
        recorded.event->SecondsSince(*begins_[static_cast<size_t>(event) % begins_.size()]);
    Keep(seconds.status());
    if (seconds.ok()) busy_seconds_ += *seconds;
  }
  return failure_;
}

void CudaContext::RecordBegin() {
  work_begun_ = true;
  Keep(begins_[static_cast<size_t>(num_events_) % begins_.size()]->Record(stream_.get()));
}

double CudaContext::TakeBusySeconds() {
  if (!measures_busy_) {
    std::vector<std::optional<Event>*> events;
    for (Recorded& recorded : events_) events.push_back(&recorded.event);
    for (std::optional<Event>& begin : begins_) events.push_back(&begin);
    for (std::optional<Event>* event : events) {
      absl::StatusOr<Event> timed = Event::Make(device().index, /*timed=*/true);
      Keep(timed.status());
      if (!timed.ok()) return 0;
      event->emplace(*std::move(timed));
    }
    measures_busy_ = true;
  }
  return std::exchange(busy_seconds_, 0);
}

void CudaContext::ParallelFor(int n, absl::FunctionRef<void(int)> body) {
  pool_.Run(n, [&](int i, int) { body(i); });
}

absl::Status CudaContext::RunGraph(std::span<const int64_t> key,
                                   absl::FunctionRef<absl::Status()> enqueue) {
  if (!ok()) return failure_;
  const auto all = [&] {
    const absl::Status status = enqueue();
    return ok() ? status : failure_;
  };
  BeginWork();
  Keep(graphs_.Run(key, all, stream_));
  return failure_;
}

}  // namespace continuo::kernels::cuda
