// SPDX-License-Identifier: Apache-2.0
// encode_texts FOLDER: reads a JSON array of strings from stdin and writes the ids of each, as the
// tokenizer of the folder gives them, without special tokens of its own and with them, as two JSON
// arrays of arrays.
#include <iostream>
#include <iterator>
#include <string>

#include "nlohmann/json.hpp"
#include "services/worker/text/text_model.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: encode_texts FOLDER <texts.json\n";
    return 2;
  }
  const auto model = continuo::text::TextModel::Open(argv[1]);
  if (!model.ok()) {
    std::cerr << model.status() << "\n";
    return 1;
  }
  const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
  nlohmann::json all = {nlohmann::json::array(), nlohmann::json::array()};
  for (const auto& text : nlohmann::json::parse(input)) {
    for (const bool add_special : {false, true}) {
      const auto ids = (*model)->Encode(text.get<std::string>(), add_special);
      if (!ids.ok()) {
        std::cerr << ids.status() << "\n";
        return 1;
      }
      all[add_special ? 1 : 0].push_back(*ids);
    }
  }
  std::cout << all.dump() << "\n";
  return 0;
}
