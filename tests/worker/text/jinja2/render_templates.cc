// SPDX-License-Identifier: Apache-2.0
// Renders templates for equality_test.py. The first line of the standard input is a JSON object
// with the variables, each following one a JSON string with a template; each answer is a line with
// {"text": …} or {"error": …}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "services/worker/text/continuo_text.h"

namespace {

ContinuoSlice SliceOf(std::string_view s) { return {.data = s.data(), .size = s.size()}; }

nlohmann::json Render(const std::string& chat_template, const std::string& request) {
  ContinuoString text;
  if (continuo_text_render_template(SliceOf(chat_template), SliceOf(request), &text) !=
      CONTINUO_TEXT_OK) {
    const ContinuoSlice error = continuo_text_error();
    return {{"error", std::string(error.data, error.size)}};
  }
  nlohmann::json answer = {{"text", std::string(text.data, text.size)}};
  continuo_string_free(text);
  return answer;
}

}  // namespace

int main() {
  std::string line;
  if (!std::getline(std::cin, line)) return 1;
  const std::string request = nlohmann::json{
      {"messages", nlohmann::json::array()},
      {"add_generation_prompt", true},
      {"template_arguments",
       line}}.dump();
  while (std::getline(std::cin, line)) {
    std::cout << Render(nlohmann::json::parse(line).get<std::string>(), request) << std::endl;
  }
  return 0;
}
