// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/cuda/shim/fake_nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>

// The opaque types of NVML.
struct nvmlDevice_st {
  std::string pci_bus_id;
};
struct nvmlEventSet_st {
  std::set<nvmlDevice_t> registered;
};

namespace continuo::testing {
namespace {

struct Nvml {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::unique_ptr<nvmlDevice_st>> devices, strangers;
  std::map<std::string, std::pair<nvmlReturn_t, int>> failures;  // and how often it is returned
  std::map<std::string, int> num_calls;
  std::set<std::string> mig;
  std::deque<nvmlEventData_t> events;
  std::set<nvmlEventSet_t> sets;
  int num_inits = 0;
  bool hangs = false;
};

Nvml& TheNvml() {
  static Nvml* const nvml = new Nvml;
  return *nvml;
}

// Locks and counts the call; `result` is what Fail said.
struct Call {
  explicit Call(const std::string& function, const std::string& device = "")
      : nvml(TheNvml()), lock(nvml.mutex) {
    ++nvml.num_calls[function];
    for (const std::string& name : {function, function + " " + device}) {
      const auto failure = nvml.failures.find(name);
      if (failure != nvml.failures.end() && failure->second.second-- > 0) {
        result = failure->second.first;
      }
    }
    if (nvml.num_inits == 0 && function != "nvmlInit_v2") result = NVML_ERROR_UNINITIALIZED;
    nvml.changed.notify_all();
  }
  Nvml& nvml;
  std::unique_lock<std::mutex> lock;
  nvmlReturn_t result = NVML_SUCCESS;
};

// Returns the device of a set that has one.
[[maybe_unused]] std::string NameOf(nvmlEventSet_t set) {
  const std::lock_guard lock(TheNvml().mutex);
  const bool has_one = TheNvml().sets.contains(set) && set->registered.size() == 1;
  return has_one ? (*set->registered.begin())->pci_bus_id : "";
}

}  // namespace

std::string FakeNvml::Path() {
  Dl_info info;
  return dladdr(reinterpret_cast<void*>(&TheNvml), &info) != 0 ? info.dli_fname : "";
}

void FakeNvml::Reset(const std::vector<std::string>& devices) {
  if (NumAlive() != 0) std::abort();
  Nvml& nvml = TheNvml();
  const std::lock_guard lock(nvml.mutex);
  nvml.devices.clear();
  nvml.strangers.clear();
  for (const std::string& id : devices) {
    nvml.devices[id] = std::make_unique<nvmlDevice_st>(nvmlDevice_st{id});
  }
  nvml.failures.clear();
  nvml.num_calls.clear();
  nvml.mig.clear();
  nvml.events.clear();
}

void FakeNvml::Send(const std::string& device, unsigned long long data, unsigned long long type,
                    unsigned gpu_instance) {
  Nvml& nvml = TheNvml();
  const std::lock_guard lock(nvml.mutex);
  auto& known = nvml.devices.contains(device) ? nvml.devices[device] : nvml.strangers[device];
  if (known == nullptr) known = std::make_unique<nvmlDevice_st>(nvmlDevice_st{device});
  nvml.events.push_back({.device = known.get(),
                         .eventType = type,
                         .eventData = data,
                         .gpuInstanceId = gpu_instance,
                         .computeInstanceId = 0xffffffff});
  nvml.changed.notify_all();
}

void FakeNvml::Fail(const std::string& function, nvmlReturn_t result, int times) {
  Nvml& nvml = TheNvml();
  const std::lock_guard lock(nvml.mutex);
  nvml.failures[function] = {result, times};
}

void FakeNvml::TurnMigOn(const std::string& device) {
  const std::lock_guard lock(TheNvml().mutex);
  TheNvml().mig.insert(device);
}

void FakeNvml::Hang() {
  const std::lock_guard lock(TheNvml().mutex);
  TheNvml().hangs = true;
}

void FakeNvml::Release() {
  const std::lock_guard lock(TheNvml().mutex);
  TheNvml().hangs = false;
  TheNvml().changed.notify_all();
}

void FakeNvml::AwaitCalls(const std::string& function, int count) {
  Nvml& nvml = TheNvml();
  std::unique_lock lock(nvml.mutex);
  nvml.changed.wait(lock, [&] { return nvml.num_calls[function] >= count; });
}

void FakeNvml::AwaitTaken() {
  Nvml& nvml = TheNvml();
  std::unique_lock lock(nvml.mutex);
  nvml.changed.wait(lock, [&] { return nvml.events.empty(); });
  // The last event has been dealt with when the next one is asked for.
  const int calls = nvml.num_calls["nvmlEventSetWait_v2"];
  nvml.changed.wait(lock, [&] { return nvml.num_calls["nvmlEventSetWait_v2"] > calls; });
}

void FakeNvml::AwaitEnd() {
  Nvml& nvml = TheNvml();
  std::unique_lock lock(nvml.mutex);
  nvml.changed.wait(lock, [&] { return nvml.sets.empty() && nvml.num_inits == 0; });
}

int FakeNvml::NumCalls(const std::string& function) {
  const std::lock_guard lock(TheNvml().mutex);
  return TheNvml().num_calls[function];
}

int FakeNvml::NumAlive() {
  Nvml& nvml = TheNvml();
  const std::lock_guard lock(nvml.mutex);
  return static_cast<int>(nvml.sets.size()) + nvml.num_inits;
}

}  // namespace continuo::testing

using continuo::testing::Call;
using continuo::testing::NameOf;

extern "C" {

const char* nvmlErrorString(nvmlReturn_t result) {
  return result == NVML_ERROR_NOT_FOUND ? nullptr : "error of the fake";
}

nvmlReturn_t nvmlInit_v2() {
  Call call("nvmlInit_v2");
  if (call.result == NVML_SUCCESS) ++call.nvml.num_inits;
  return call.result;
}

nvmlReturn_t nvmlShutdown() {
  Call call("nvmlShutdown");
  if (call.nvml.num_inits > 0) --call.nvml.num_inits;
  return call.result;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) {
  Call call("nvmlDeviceGetHandleByPciBusId_v2", id);
  if (call.result != NVML_SUCCESS) return call.result;
  const auto found = call.nvml.devices.find(id);
  if (found == call.nvml.devices.end()) return NVML_ERROR_NOT_FOUND;
  *device = found->second.get();
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
  Call call("nvmlEventSetCreate");
  if (call.result != NVML_SUCCESS) return call.result;
  *set = new nvmlEventSet_st;
  call.nvml.sets.insert(*set);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set) {
  Call call("nvmlDeviceRegisterEvents", device->pci_bus_id);
  if (call.result != NVML_SUCCESS) return call.result;
  if (types != nvmlEventTypeXidCriticalError || !call.nvml.sets.contains(set)) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  set->registered.insert(device);
  return NVML_SUCCESS;
}

#ifndef CONTINUO_FAKE_NVML_WITHOUT_WAIT
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data, unsigned timeout) {
  Call call("nvmlEventSetWait_v2", NameOf(set));
  auto& nvml = call.nvml;
  if (!nvml.sets.contains(set) || set->registered.empty()) return NVML_ERROR_INVALID_ARGUMENT;
  nvml.changed.wait(call.lock, [&] { return !nvml.hangs; });
  if (call.result != NVML_SUCCESS) return call.result;
  // Any set gets the events of devices that no set has.
  const auto next = [&] {
    return std::ranges::find_if(nvml.events, [&](const nvmlEventData_t& event) {
      return set->registered.contains(event.device) ||
             std::ranges::none_of(nvml.sets, [&](nvmlEventSet_t other) {
               return other->registered.contains(event.device);
             });
    });
  };
  // It returns early, as NVML may, so that tests of many waits are short.
  nvml.changed.wait_for(call.lock, std::chrono::milliseconds(std::min(timeout, 2u)),
                        [&] { return next() != nvml.events.end(); });
  const auto event = next();
  if (event == nvml.events.end()) return NVML_ERROR_TIMEOUT;
  *data = *event;
  nvml.events.erase(event);
  nvml.changed.notify_all();
  return NVML_SUCCESS;
}
#endif

#ifndef CONTINUO_FAKE_NVML_WITHOUT_MIG
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned* mode, unsigned* pending) {
  Call call("nvmlDeviceGetMigMode", device->pci_bus_id);
  if (call.result != NVML_SUCCESS) return call.result;
  *mode = *pending =
      call.nvml.mig.contains(device->pci_bus_id) ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
  return NVML_SUCCESS;
}
#endif

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  Call call("nvmlEventSetFree");
  if (call.nvml.sets.erase(set) == 0) return NVML_ERROR_INVALID_ARGUMENT;
  delete set;
  return call.result;
}

}  // extern "C"
