// SPDX-License-Identifier: Apache-2.0
#pragma once

// The page at /: conversations with a model, and the batch of a worker, live.

#include <span>
#include <string>
#include <string_view>

#include "services/gateway/openai/http/http_message.h"

namespace continuo::gateway::openai {

// A file of this folder, as the build found it.
struct PageFile {
  std::string_view name, text;
};

// The page, in one document that loads nothing else: gateways of two versions behind one address
// do not mix their files. It may run its own scripts and talk to its own server, and nothing more
// (Content-Security-Policy).
HttpResponse PageResponse();

// `page.html` with each <link rel="stylesheet" href="NAME"> and <script src="NAME"></script>
// replaced by the file it names.
std::string AssemblePage(std::span<const PageFile> files);

// The Content-Security-Policy of a document: it allows its inline scripts and styles by their
// hashes.
std::string PolicyOf(std::string_view html);

}  // namespace continuo::gateway::openai
