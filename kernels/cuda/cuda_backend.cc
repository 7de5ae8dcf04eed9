// SPDX-License-Identifier: Apache-2.0
// Memory, copies and what is enqueued again; the ops are in cuda_ops.cc and beside it.
#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/backend_calls.h"
#include "kernels/cuda/runtime/cuda_status.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {
namespace {

// Of two steps under way, whose arrays are at most a quarter of it. Larger copies, of weights, come
// from where the caller has the bytes.
constexpr size_t kStagingBytes = size_t{64} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<CudaBackend>> CudaBackend::Make(const CudaBackendOptions& options) {
  const int device = options.device.index;
  ASSIGN_OR_RETURN(Stream stream, Stream::Make(device));
  std::unique_ptr<CudaBackend> made(new CudaBackend(options, std::move(stream)));
  ASSIGN_OR_RETURN(
      made->matmul_,
      cuda::MatMul::Make(device, {.deterministic = options.deterministic,
                                  .fp8_fast_accumulation = options.fp8_fast_accumulation}));
  ASSIGN_OR_RETURN(made->scratch_, DeviceBuffer::Make(device, options.scratch_bytes));
  ASSIGN_OR_RETURN(made->staging_, PinnedBuffer::Make(device, kStagingBytes));
  for (Point& point : made->points_) {
    ASSIGN_OR_RETURN(Event event, Event::Make(device));
    point.event.emplace(std::move(event));
  }
  return made;
}

CudaBackend::~CudaBackend() {
  // Nothing may be in use when memory is freed; errors are those of earlier work.
  (void)stream_.Synchronize();
}

std::string CudaBackend::name() const {
  const Device& d = options_.device;
  const std::string arch =
      absl::StrCat("cuda/sm_", d.major, d.minor, options_.fp8_fast_accumulation ? " fast fp8" : "");
  if (!options_.deterministic) return arch;
  // What decides the bits: cuBLASLt picks algorithms by the device.
  return absl::StrCat(arch, " ", d.name, " cublasLt ", cublasLtGetVersion(), " kernels ",
                      kCudaArithmeticVersion, " deterministic");
}

void CudaBackend::Keep(const absl::Status& status) {
  failure_.Update(status);  // only where it is OK
}

absl::StatusOr<void*> CudaBackend::Allocate(size_t bytes) {
  ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Make(device(), std::max<size_t>(bytes, 1)));
  void* const data = buffer.data();
  RETURN_IF_ERROR(
      CudaStatus(cudaMemsetAsync(data, 0, buffer.bytes(), stream()), device(), "cudaMemsetAsync"));
  allocations_.emplace(data, std::move(buffer));
  return data;
}

void CudaBackend::Free(void* data) {
  if (data == nullptr) return;
  known_routes_ = {};
  CONTINUO_CHECK(allocations_.erase(data) == 1);
}

absl::StatusOr<void*> CudaBackend::AllocateHost(size_t bytes) {
  ASSIGN_OR_RETURN(PinnedBuffer buffer, PinnedBuffer::Make(device(), std::max<size_t>(bytes, 1)));
  void* const data = buffer.data();
  host_allocations_.emplace(data, std::move(buffer));
  return data;
}

void CudaBackend::FreeHost(void* data) {
  if (data == nullptr) return;
  CONTINUO_CHECK(host_allocations_.erase(data) == 1);
}

void* CudaBackend::Scratch(size_t bytes) {
  known_fp8_ = {};
  if (bytes > scratch_.bytes() && failure_.ok()) {
    size_t wanted = bytes;
    if (graphs_.empty()) {
      Keep(stream_.Synchronize());
      scratch_ = DeviceBuffer();
    } else {
      // Graphs stay: other ranks, which may have more scratch, go on to launch theirs. By half at
      // least, so that all that is left behind is at most twice as large.
      wanted = std::max(bytes, scratch_.bytes() / 2 * 3);
      smaller_scratch_.push_back(std::move(scratch_));
    }
    absl::StatusOr<DeviceBuffer> larger = DeviceBuffer::Make(device(), wanted);
    Keep(larger.status());
    if (larger.ok()) scratch_ = *std::move(larger);
  }
  return bytes > scratch_.bytes() ? nullptr : scratch_.data();
}

void CudaBackend::ForgetRepeated() {
  graphs_.Clear();
  smaller_scratch_.clear();
}

void CudaBackend::CopyIn(Tensor dst, const void* host) {
  const size_t bytes = dst.bytes();
  if (bytes == 0 || !failure_.ok()) return;
  known_routes_ = {};
  if (bytes <= staging_.bytes()) {
    const uint64_t padded = (bytes + 63) / 64 * 64, size = staging_.bytes();
    uint64_t at = staged_ % size;
    if (at + padded > size) {  // not around the end
      staged_ += size - at;
      at = 0;
    }
    if (staged_ + padded - copied_ > size) {
      Keep(Synchronize());
      if (!failure_.ok()) return;
    }
    staged_ += padded;
    void* const staged = static_cast<char*>(staging_.data()) + at;
    std::memcpy(staged, host, bytes);
    host = staged;
  }
  Enqueue("cudaMemcpyAsync",
          [&] { return cudaMemcpyAsync(dst.data, host, bytes, cudaMemcpyHostToDevice, stream()); });
}

void CudaBackend::CopyOut(void* host, Tensor src) {
  if (src.bytes() == 0) return;
  Enqueue("cudaMemcpyAsync", [&] {
    return cudaMemcpyAsync(host, src.data, src.bytes(), cudaMemcpyDeviceToHost, stream());
  });
}

absl::Status CudaBackend::Synchronize() {
  // Waits also after a failure: the caller's memory may be in use.
  Keep(stream_.Synchronize());
  copied_ = staged_;
  return failure_;
}

int64_t CudaBackend::Mark() {
  Point& point = points_[static_cast<size_t>(num_marks_) % points_.size()];
  point.staged = staged_;
  point.has_begun = std::exchange(part_begun_, false);
  Keep(point.event->Record(stream()));
  return num_marks_++;
}

absl::Status CudaBackend::WaitFor(int64_t mark) {
  CONTINUO_CHECK(mark < num_marks_ && mark + static_cast<int64_t>(points_.size()) >= num_marks_);
  Point& point = points_[static_cast<size_t>(mark) % points_.size()];
  Keep(point.event->Synchronize());
  if (!failure_.ok()) return Synchronize();  // the point may never have been set
  copied_ = std::max(copied_, point.staged);
  if (std::exchange(point.has_begun, false)) {
    const absl::StatusOr<double> seconds =
        point.event->SecondsSince(*begins_[static_cast<size_t>(mark) % begins_.size()]);
    Keep(seconds.status());
    if (seconds.ok()) busy_seconds_ += *seconds;
  }
  return failure_;
}

void CudaBackend::RecordBegin() {
  part_begun_ = true;
  Keep(begins_[static_cast<size_t>(num_marks_) % begins_.size()]->Record(stream()));
}

double CudaBackend::TakeBusySeconds() {
  if (!measures_busy_) {
    std::vector<std::optional<Event>*> events;
    for (Point& point : points_) events.push_back(&point.event);
    for (std::optional<Event>& begin : begins_) events.push_back(&begin);
    for (std::optional<Event>* event : events) {
      absl::StatusOr<Event> timed = Event::Make(device(), /*timed=*/true);
      Keep(timed.status());
      if (!timed.ok()) return 0;
      event->emplace(*std::move(timed));
    }
    measures_busy_ = true;
  }
  return std::exchange(busy_seconds_, 0);
}

void CudaBackend::ParallelFor(int n, absl::FunctionRef<void(int)> body) {
  pool_.Run(n, [&](int i, int) { body(i); });
}

absl::Status CudaBackend::Repeat(std::span<const int64_t> key,
                                 absl::FunctionRef<absl::Status()> work) {
  if (!failure_.ok()) return failure_;
  const auto all = [&] {
    const absl::Status status = work();
    return failure_.ok() ? status : failure_;
  };
  BeginPart();
  known_routes_ = {};  // a graph may write others there
  known_fp8_ = {};
  Keep(graphs_.Run(key, all, stream_));
  return failure_;
}

}  // namespace continuo::kernels::cuda
