// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/stream.h"

#include "kernels/cuda/runtime/cuda_status.h"
#include "kernels/cuda/runtime/pdl.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {

absl::StatusOr<Event> Event::Make(int device, bool timed) {
  RETURN_IF_ERROR(SetDevice(device));
  cudaEvent_t event = nullptr;
  const unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
  RETURN_IF_ERROR(
      CudaStatus(cudaEventCreateWithFlags(&event, flags), device, "cudaEventCreateWithFlags"));
  return Event(device, event);
}

// An error of destruction belongs to earlier work, and whoever waits for that work gets it.
Event::~Event() {
  if (event_ != nullptr) (void)cudaEventDestroy(event_);
}

absl::Status Event::Record(cudaStream_t stream) {
  return CudaStatus(cudaEventRecord(event_, stream), device_, "cudaEventRecord");
}

absl::StatusOr<bool> Event::Done() const {
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  RETURN_IF_ERROR(CudaStatus(error, device_, "cudaEventQuery"));
  return true;
}

absl::Status Event::Synchronize() const {
  return CudaStatus(cudaEventSynchronize(event_), device_, "cudaEventSynchronize");
}

absl::StatusOr<double> Event::SecondsSince(const Event& other) const {
  float milliseconds = 0;
  RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&milliseconds, other.event_, event_), device_,
                             "cudaEventElapsedTime"));
  return milliseconds * 1e-3;
}

absl::StatusOr<Stream> Stream::Make(int device, bool pdl) {
  RETURN_IF_ERROR(SetDevice(device));
  bool has_code = false;
  if (pdl) RETURN_IF_ERROR(CudaStatus(HasPdlCode(&has_code), device, "cudaFuncGetAttributes"));
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), device,
                             "cudaStreamCreateWithFlags"));
  return Stream(device, stream, has_code);
}

Stream::~Stream() {
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

absl::Status Stream::Synchronize() {
  return CudaStatus(cudaStreamSynchronize(stream_), device_, "cudaStreamSynchronize");
}

absl::Status Stream::WaitFor(const Event& event) {
  return CudaStatus(cudaStreamWaitEvent(stream_, event.get(), 0), device_, "cudaStreamWaitEvent");
}

}  // namespace continuo::kernels::cuda
