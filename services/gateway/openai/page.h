// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "services/gateway/openai/http/http_connection.h"

namespace continuo::gateway::openai {

// The page at /: a prompt to try and the fleet, in one document that loads nothing else. It may run
// its own script and talk to its own server, and nothing more (Content-Security-Policy).
HttpResponse PageResponse();

// The Content-Security-Policy of a document: it allows its inline scripts and styles by their
// hashes.
std::string PolicyOf(std::string_view html);

}  // namespace continuo::gateway::openai
