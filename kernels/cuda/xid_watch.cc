// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/xid_watch.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/nvml_library.h"
#include "kernels/cuda/xid_log.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::cuda {
namespace {

// NVML returns by then, so that the thread can end.
constexpr unsigned kWaitMilliseconds = 100;
// Errors in a row after which NVML is asked no more; a second of them at least.
constexpr int kMaxErrors = 100;
// Of nvmlEventData_t: no GPU instance.
constexpr unsigned kNoInstance = 0xffffffff;

}  // namespace

struct XidWatch::State {
  State(std::vector<Device> devices_, XidWatchOptions options_)
      : devices(std::move(devices_)), options(std::move(options_)) {}

  // The thread.
  void Run();
  absl::Status Watch(const NvmlLibrary& nvml);
  absl::Status WatchSet(const NvmlLibrary& nvml, nvmlEventSet_t set);
  absl::Status Register(const NvmlLibrary& nvml, nvmlEventSet_t set);
  void Take(const nvmlEventData_t& event);
  void Note(bool is_fault, const std::string& text);
  bool Pause();  // false: the thread is to end

  const std::vector<Device> devices;
  const XidWatchOptions options;
  std::vector<std::pair<nvmlDevice_t, int>> handles;  // and devices; of the thread alone

  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex:
  bool started = false;  // `watched` is known
  std::vector<int> watched;
  bool hears = true;  // Xids may come
  bool stopping = false;
  bool ended = false;
  XidLog xids;
};

void XidWatch::State::Run() {
  absl::StatusOr<std::unique_ptr<NvmlLibrary>> nvml = NvmlLibrary::Open(options.library);
  const absl::Status status = nvml.ok() ? Watch(**nvml) : nvml.status();
  if (!status.ok()) Note(false, std::string(status.message()));
  {
    const std::lock_guard lock(mutex);
    started = true;
    hears = false;
  }
  changed.notify_all();
  if (nvml.ok()) nvml->reset();
  const std::lock_guard lock(mutex);
  ended = true;
  changed.notify_all();
}

absl::Status XidWatch::State::Watch(const NvmlLibrary& nvml) {
  RETURN_IF_ERROR(nvml.Check(nvml.Init(), "nvmlInit_v2"));
  nvmlEventSet_t set = nullptr;
  absl::Status status = nvml.Check(nvml.EventSetCreate(&set), "nvmlEventSetCreate");
  if (status.ok()) {
    status = WatchSet(nvml, set);
    (void)nvml.EventSetFree(set);
  }
  (void)nvml.Shutdown();
  return status;
}

absl::Status XidWatch::State::WatchSet(const NvmlLibrary& nvml, nvmlEventSet_t set) {
  RETURN_IF_ERROR(Register(nvml, set));
  {
    const std::lock_guard lock(mutex);
    for (const auto& [handle, device] : handles) watched.push_back(device);
    started = true;
  }
  changed.notify_all();
  int num_errors = 0;
  while (Pause()) {
    nvmlEventData_t event{};
    const nvmlReturn_t result = nvml.EventSetWait(set, &event, kWaitMilliseconds);
    if (result == NVML_SUCCESS) Take(event);
    const bool failed = result != NVML_SUCCESS && result != NVML_ERROR_TIMEOUT;
    num_errors = failed ? num_errors + 1 : 0;
    if (num_errors >= kMaxErrors) return nvml.Check(result, "nvmlEventSetWait_v2");
  }
  return absl::OkStatus();
}

// OK where at least one device is registered; the others are noted.
absl::Status XidWatch::State::Register(const NvmlLibrary& nvml, nvmlEventSet_t set) {
  absl::Status failure;
  for (const Device& device : devices) {
    nvmlDevice_t handle = nullptr;
    const std::string on = absl::StrCat(" of cuda:", device.index, " at ", device.pci_bus_id);
    absl::Status status =
        nvml.Check(nvml.DeviceGetHandleByPciBusId(device.pci_bus_id.c_str(), &handle),
                   absl::StrCat("nvmlDeviceGetHandleByPciBusId_v2", on).c_str());
    if (status.ok()) {
      const nvmlReturn_t result =
          nvml.DeviceRegisterEvents(handle, nvmlEventTypeXidCriticalError, set);
      status = nvml.Check(result, absl::StrCat("nvmlDeviceRegisterEvents", on).c_str());
      // After this one the set is good for nothing but being freed.
      if (result == NVML_ERROR_UNKNOWN) return status;
    }
    if (status.ok()) {
      handles.emplace_back(handle, device.index);
    } else if (failure.ok()) {
      failure = status;
    }
  }
  if (handles.empty()) return failure;
  if (!failure.ok()) Note(false, std::string(failure.message()));
  return absl::OkStatus();
}

void XidWatch::State::Take(const nvmlEventData_t& event) {
  if ((event.eventType & nvmlEventTypeXidCriticalError) == 0) return;
  for (const auto& [handle, device] : handles) {
    if (handle != event.device) continue;
    Xid xid{.device = device, .number = event.eventData};
    if (event.gpuInstanceId != kNoInstance) xid.gpu_instance = event.gpuInstanceId;
    bool log = false;
    {
      const std::lock_guard lock(mutex);
      if (stopping) return;
      xid.at = options.clock->Elapsed();
      log = xids.Add(xid);
    }
    changed.notify_all();
    if (log) Note(true, ToString(xid));
    return;
  }
}

void XidWatch::State::Note(bool is_fault, const std::string& text) {
  {
    const std::lock_guard lock(mutex);
    if (stopping) return;
  }
  if (options.on_note != nullptr) options.on_note({.is_fault = is_fault, .text = text});
}

bool XidWatch::State::Pause() {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, absl::ToChronoMicroseconds(options.pause), [this] { return stopping; });
  return !stopping;
}

XidWatch::XidWatch(std::vector<Device> devices, XidWatchOptions options)
    : state_(std::make_shared<State>(std::move(devices), std::move(options))) {
  CONTINUO_CHECK(state_->options.clock != nullptr && !state_->devices.empty());
  thread_ = std::thread([state = state_] { state->Run(); });
}

XidWatch::~XidWatch() {
  bool ended = false;
  {
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
    ended = state_->changed.wait_for(lock, absl::ToChronoMicroseconds(state_->options.end_limit),
                                     [this] { return state_->ended; });
  }
  ended ? thread_.join() : thread_.detach();
}

absl::Status XidWatch::Explain(const absl::Status& failure) {
  if (failure.ok() || absl::IsResourceExhausted(failure)) return failure;
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.changed.wait_for(lock, absl::ToChronoMicroseconds(s.options.explain_limit),
                     [&] { return !s.hears || s.xids.HasRecent(s.options.clock->Elapsed()); });
  const std::string reasons = s.xids.Reasons(s.options.clock->Elapsed());
  if (reasons.empty()) return failure;
  return absl::Status(failure.code(), absl::StrCat(failure.message(), reasons));
}

std::vector<int> XidWatch::Watched() const {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.changed.wait(lock, [&] { return s.started; });
  return s.watched;
}

}  // namespace continuo::cuda
