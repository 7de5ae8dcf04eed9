// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/faults/xid_watch.h"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cuda/faults/nvml_library.h"
#include "kernels/cuda/faults/xid_log.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {
namespace {

// Time limit of one round of waits for all event sets, so that the thread can end.
constexpr unsigned kWaitMilliseconds = 100;
// After this many errors in a row, a second of them at least, NVML is not asked about a device any
// more.
constexpr int kMaxErrors = 100;
// The value in nvmlEventData_t that means no GPU instance.
constexpr unsigned kNoInstance = 0xffffffff;

Xid::Loss LossOf(nvmlReturn_t result) {
  if (result == NVML_ERROR_GPU_IS_LOST) return Xid::Loss::kLost;
  if (result == NVML_ERROR_RESET_REQUIRED) return Xid::Loss::kResetRequired;
  return Xid::Loss::kNone;
}

// Returns the indices of "cuda:0" and "cuda:0,1" in a text.
std::vector<int> DevicesIn(std::string_view text) {
  constexpr std::string_view kPrefix = "cuda:";
  std::vector<int> devices;
  for (size_t at = text.find(kPrefix); at != text.npos; at = text.find(kPrefix)) {
    text.remove_prefix(at + kPrefix.size());
    while (true) {
      int index = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
      if (error != std::errc()) break;
      devices.push_back(index);
      text.remove_prefix(static_cast<size_t>(end - text.data()));
      if (!text.starts_with(',')) break;
      text.remove_prefix(1);
    }
  }
  return devices;
}

}  // namespace

struct XidWatch::State {
  // A device has an event set of its own, so that its errors say nothing about other devices.
  struct Registration {
    int device = 0;
    std::string name;  // for notes
    nvmlDevice_t handle = nullptr;
    nvmlEventSet_t set = nullptr;
    nvmlReturn_t last = NVML_SUCCESS;  // last answer for its set
    int num_errors = 0;                // in a row
  };

  State(std::vector<DeviceInfo> devices_, XidWatchOptions options_)
      : devices(std::move(devices_)), options(std::move(options_)) {}

  // Runs on the thread.
  void Run();
  absl::Status Watch(const NvmlLibrary& nvml);
  absl::Status Register(const NvmlLibrary& nvml);
  absl::StatusOr<Registration> RegisterDevice(const NvmlLibrary& nvml, const DeviceInfo& device);
  void NoteMig(const NvmlLibrary& nvml);
  absl::Status WaitForEvents(const NvmlLibrary& nvml);
  bool Poll(const NvmlLibrary& nvml, Registration& from, unsigned milliseconds);
  void HandleEvent(const Registration& from, const nvmlEventData_t& event);
  void Add(Xid xid);
  void Note(DeviceNote::Kind kind, const std::string& text);
  bool Pause();  // returns false when the thread has to end

  const std::vector<DeviceInfo> devices;
  const XidWatchOptions options;
  std::vector<Registration> registrations;  // used by the thread alone

  std::mutex mutex;
  std::condition_variable changed;
  // The members below are guarded by mutex.
  bool started = false;  // `watched` is known
  std::vector<int> watched;
  bool may_report = true;  // Xids may come
  bool stopping = false;
  bool ended = false;
  XidLog xids;
};

void XidWatch::State::Run() {
  absl::StatusOr<std::unique_ptr<NvmlLibrary>> nvml = NvmlLibrary::Open(options.library);
  const absl::Status status = nvml.ok() ? Watch(**nvml) : nvml.status();
  if (!status.ok()) Note(DeviceNote::Kind::kEventsUnavailable, std::string(status.message()));
  {
    const std::lock_guard lock(mutex);
    started = true;
    may_report = false;
  }
  changed.notify_all();
  if (nvml.ok()) nvml->reset();
  const std::lock_guard lock(mutex);
  ended = true;
  changed.notify_all();
}

absl::Status XidWatch::State::Watch(const NvmlLibrary& nvml) {
  RETURN_IF_ERROR(nvml.Check(nvml.Init(), "nvmlInit_v2"));
  absl::Status status = Register(nvml);
  if (status.ok()) {
    NoteMig(nvml);
    {
      const std::lock_guard lock(mutex);
      for (const Registration& l : registrations) watched.push_back(l.device);
      started = true;
    }
    changed.notify_all();
    status = WaitForEvents(nvml);
  }
  for (const Registration& l : registrations) (void)nvml.EventSetFree(l.set);
  (void)nvml.Shutdown();
  return status;
}

// Returns OK if the events of at least one device are registered. A note names the others.
absl::Status XidWatch::State::Register(const NvmlLibrary& nvml) {
  std::vector<std::string> failures;
  for (const DeviceInfo& device : devices) {
    absl::StatusOr<Registration> l = RegisterDevice(nvml, device);
    if (l.ok()) {
      registrations.push_back(*std::move(l));
    } else {
      failures.emplace_back(l.status().message());
    }
  }
  const std::string all = absl::StrJoin(failures, "; ");
  if (registrations.empty()) return absl::InternalError(all);
  if (!failures.empty()) Note(DeviceNote::Kind::kEventsIncomplete, all);
  return absl::OkStatus();
}

absl::StatusOr<XidWatch::State::Registration> XidWatch::State::RegisterDevice(
    const NvmlLibrary& nvml, const DeviceInfo& device) {
  Registration l{.device = device.index,
                 .name = absl::StrCat("cuda:", device.index, " at ", device.pci_bus_id)};
  const auto check = [&](nvmlReturn_t result, const char* function) {
    return nvml.Check(result, absl::StrCat(function, " of ", l.name).c_str());
  };
  RETURN_IF_ERROR(check(nvml.DeviceGetHandleByPciBusId(device.pci_bus_id.c_str(), &l.handle),
                        "nvmlDeviceGetHandleByPciBusId_v2"));
  RETURN_IF_ERROR(check(nvml.EventSetCreate(&l.set), "nvmlEventSetCreate"));
  const absl::Status status =
      check(nvml.DeviceRegisterEvents(l.handle, nvmlEventTypeXidCriticalError, l.set),
            "nvmlDeviceRegisterEvents");
  if (status.ok()) return l;
  (void)nvml.EventSetFree(l.set);
  return status;
}

void XidWatch::State::NoteMig(const NvmlLibrary& nvml) {
  if (nvml.DeviceGetMigMode == nullptr) return;
  std::vector<std::string> names;
  for (const Registration& l : registrations) {
    unsigned mode = NVML_DEVICE_MIG_DISABLE, pending = 0;
    const nvmlReturn_t result = nvml.DeviceGetMigMode(l.handle, &mode, &pending);
    if (result == NVML_SUCCESS && mode == NVML_DEVICE_MIG_ENABLE) names.push_back(l.name);
  }
  if (names.empty()) return;
  Note(DeviceNote::Kind::kEventsIncomplete,
       absl::StrCat("events of MIG instances need privileges: MIG is on for ",
                    absl::StrJoin(names, ", ")));
}

// Returns when the thread has to end, or with the errors of the last devices.
absl::Status XidWatch::State::WaitForEvents(const NvmlLibrary& nvml) {
  bool has_more = false;
  while (Pause()) {
    // All sets together wait kWaitMilliseconds, and not at all while one of them has events.
    const auto num_sets = static_cast<unsigned>(registrations.size());
    const unsigned milliseconds = has_more ? 0 : std::max(1u, kWaitMilliseconds / num_sets);
    has_more = false;
    for (Registration& l : registrations) has_more |= Poll(nvml, l, milliseconds);

    std::vector<std::string> failures;
    std::erase_if(registrations, [&](const Registration& l) {
      if (l.num_errors < kMaxErrors) return false;
      const std::string call = absl::StrCat("nvmlEventSetWait_v2 of ", l.name);
      failures.emplace_back(nvml.Check(l.last, call.c_str()).message());
      (void)nvml.EventSetFree(l.set);
      return true;
    });
    const std::string all = absl::StrJoin(failures, "; ");
    if (registrations.empty()) return absl::InternalError(all);
    if (!failures.empty()) Note(DeviceNote::Kind::kEventsIncomplete, all);
  }
  return absl::OkStatus();
}

// Returns whether there was an event; there may be more.
bool XidWatch::State::Poll(const NvmlLibrary& nvml, Registration& from, unsigned milliseconds) {
  nvmlEventData_t event{};
  const nvmlReturn_t result = nvml.EventSetWait(from.set, &event, milliseconds);
  if (result == NVML_SUCCESS) HandleEvent(from, event);
  // A loss is a fault by itself, and the set reports it again and again. Its Xid may still come.
  const Xid::Loss loss = LossOf(result);
  if (loss != Xid::Loss::kNone && result != from.last) Add({.device = from.device, .loss = loss});
  from.last = result;
  const bool failed = result != NVML_SUCCESS && result != NVML_ERROR_TIMEOUT;
  from.num_errors = failed ? from.num_errors + 1 : 0;
  return result == NVML_SUCCESS;
}

void XidWatch::State::HandleEvent(const Registration& from, const nvmlEventData_t& event) {
  if ((event.eventType & nvmlEventTypeXidCriticalError) == 0 || event.device != from.handle) return;
  Xid xid{.device = from.device, .number = event.eventData};
  if (event.gpuInstanceId != kNoInstance) xid.gpu_instance = event.gpuInstanceId;
  Add(xid);
}

void XidWatch::State::Add(Xid xid) {
  bool log = false;
  {
    const std::lock_guard lock(mutex);
    if (stopping) return;
    xid.at = options.clock->Elapsed();
    log = xids.Add(xid);
  }
  changed.notify_all();
  if (log) Note(DeviceNote::Kind::kFault, ToString(xid));
}

void XidWatch::State::Note(DeviceNote::Kind kind, const std::string& text) {
  {
    const std::lock_guard lock(mutex);
    if (stopping) return;
  }
  if (options.on_note != nullptr) options.on_note({.kind = kind, .text = text});
}

bool XidWatch::State::Pause() {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, absl::ToChronoMicroseconds(options.pause), [this] { return stopping; });
  return !stopping;
}

XidWatch::XidWatch(std::vector<DeviceInfo> devices, XidWatchOptions options)
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
  if (failure.ok() || absl::IsResourceExhausted(failure) || absl::IsInvalidArgument(failure) ||
      absl::IsNotFound(failure) || absl::IsFailedPrecondition(failure)) {
    return failure;
  }
  const std::vector<int> devices = DevicesIn(std::string(failure.message()));
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.changed.wait_for(lock, absl::ToChronoMicroseconds(s.options.explain_limit), [&] {
    return !s.may_report || s.xids.HasRecent(devices, s.options.clock->Elapsed());
  });
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

}  // namespace continuo::kernels::cuda
