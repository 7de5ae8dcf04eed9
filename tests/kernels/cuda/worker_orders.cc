// SPDX-License-Identifier: Apache-2.0
// This is linked beside the worker's main in continuo-worker-shim. It has two devices of the shim,
// which the fake NVML knows, and takes orders for their faults, one a line:
//
//   break DEVICE FUNCTION COUNT [XID]   all calls fail from the COUNT-th one of FUNCTION on,
//   hang DEVICE FUNCTION COUNT [XID]    or kernels wait; the driver reports the Xid then
//   hang-collective DEVICE COUNT        the COUNT-th collective does not begin
//
// Counts begin at the order. $CONTINUO_SHIM_ORDER is an order that is taken before main begins,
// $CONTINUO_SHIM_ORDERS a FIFO of more. Each order is logged when it is taken.
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "services/base/check.h"
#include "services/common/log.h"
#include "tests/kernels/cuda/shim/cuda_shim.h"
#include "tests/kernels/cuda/shim/fake_nvml.h"

namespace continuo::testing {
namespace {

const ShimDevice kDevices[] = {{.pci_bus = 0xca},
                               {.pci_domain = 2, .pci_bus = 0x17, .pci_device = 3}};
const char* const kBusIds[] = {"00000000:CA:00.0", "00000002:17:03.0"};

void Take(const std::string& order) {
  std::istringstream words(order);
  std::string what, function;
  int device = 0, count = 0;
  words >> what >> device;
  if (what == "hang-collective") {
    words >> count;
    CONTINUO_CHECK(!words.fail());
    CudaShim::HangCollective(device, CudaShim::NumCollectives(device) + count);
  } else {
    words >> function >> count;
    CONTINUO_CHECK(!words.fail() && (what == "break" || what == "hang"));
    ShimFault fault = {.from = {device, function, CudaShim::NumCalls(device, function) + count},
                       .hangs = what == "hang"};
    unsigned long long xid = 0;
    if (words >> xid) {
      fault.also = [device, xid] {
        FakeNvml::Send(kBusIds[device], xid);
        FakeNvml::AwaitTaken();  // whoever explains the failure waits half a second for it
      };
    }
    CudaShim::Plan(fault);
  }
  common::Log(common::LogSeverity::kInfo, "order taken", {{"order", order}});
}

bool Start() {
  CudaShim::Reset({.devices = {kDevices[0], kDevices[1]}});
  FakeNvml::Reset({kBusIds[0], kBusIds[1]});
  if (const char* order = std::getenv("CONTINUO_SHIM_ORDER")) Take(order);
  const char* path = std::getenv("CONTINUO_SHIM_ORDERS");
  if (path == nullptr) return true;
  // The process's own threads take its signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([name = std::string(path)] {
    std::fstream orders(name, std::ios::in | std::ios::out);  // a FIFO that never ends
    for (std::string order; std::getline(orders, order);) Take(order);
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return true;
}

[[maybe_unused]] const bool kStarted = Start();

}  // namespace
}  // namespace continuo::testing
