// SPDX-License-Identifier: Apache-2.0
#pragma once

// The begin and the end of the program around a Gateway, with their log lines.

#include "services/common/shutdown.h"
#include "services/gateway/config.h"
#include "services/gateway/gateway.h"

namespace continuo::gateway {

// Logs the addresses and the limits that were fitted to the container.
void LogListening(const Gateway& gateway, const GatewayConfig& config);

// Drains the gateway and shuts it down: the drain is announced for drain_delay, then open streams
// go on for at most drain_grace. Another signal ends both waits.
void Drain(const GatewayConfig& config, common::ShutdownSignal* signal, Gateway* gateway);

}  // namespace continuo::gateway
