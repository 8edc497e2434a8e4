#include "data/facts.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/target_mask.h"

namespace ms::data {

std::string DataFacts::text() const {
  std::string text = fmt::format("{} {} {:d}", fingerprint, num_validation_samples, has_mask);
  for (const std::int32_t token : prompt) text += fmt::format(" {}", token);
  return text;
}

DataFacts DataFacts::parse(std::string_view text) {
  const std::vector<std::string> words = split(text, ' ');
  MS_ASSERT(words.size() >= 3, "facts '{}'", text);
  DataFacts facts{.fingerprint = words[0],
                  .num_validation_samples = std::stoll(words[1]),
                  .has_mask = words[2] == "1",
                  .prompt = {}};
  for (const std::string& word : std::span(words).subspan(3)) facts.prompt.push_back(std::stoi(word));
  return facts;
}

DataFacts facts_of(const Loader& loader) {
  const std::int64_t seq = loader.shape().seq;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(seq + 1));
  if (loader.num_validation_samples() > 0) {
    loader.fill_validation(0, 1, 1, tokens.data());
  } else {
    loader.fill(0, 0, 1, tokens.data());
  }
  remove_marks(tokens);
  tokens.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(seq / 4, 1, DataFacts::kPromptTokens)));
  return {loader.fingerprint(), loader.num_validation_samples(), loader.has_mask(), std::move(tokens)};
}

}  // namespace ms::data
