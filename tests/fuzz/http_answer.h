// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace continuo::gateway::openai {

// Ends the process where `bytes` are not what a server of OpenAI's interface sends on a connection:
// answers of HTTP/1.1 one after the other, whose bodies are JSON of OpenAI's shapes, events of a
// stream, text or the page. `is_cut`: the last one may end anywhere. `has_head`: an answer may be
// to HEAD, which has no body.
void CheckAnswers(std::string_view bytes, bool is_cut, bool has_head);

// Returns header and body of the one answer in `bytes`, without its date and without the division
// into chunks, which depends on other connections' load.
std::string Normalized(std::string_view bytes);

}  // namespace continuo::gateway::openai
