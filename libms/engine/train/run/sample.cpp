#include "train/run/sample.h"

#include "base/error.h"
#include "data/note.h"
#include "train/run/generate.h"

namespace ms::train {
namespace {

// A model that has not learned much writes any bytes; a terminal gets only those of plain text.
std::string printable(std::string text) {
  for (char& c : text) {
    if ((c < ' ' && c != '\n' && c != '\t') || c > '~') c = '.';
  }
  return text;
}

}  // namespace

std::unique_ptr<data::Tokenizer> sample_tokenizer(const Settings& settings) {
  if (settings.run.sample_tokens == 0) return nullptr;
  const std::string prefix = data::parse_source(settings.data.train.front()).prefix;
  std::unique_ptr<data::Tokenizer> tokenizer = data::tokenizer_of(prefix, settings.model.vocab);
  if (tokenizer) return tokenizer;
  throw user_error("data.tokenizer",
                   fmt::format("run.sample_tokens: the tokenizer of {} is not known: {} does not exist, and "
                               "model.vocab = {} is not that of the byte tokenizer",
                               prefix, data::note_path(prefix), settings.model.vocab),
                   "set run.sample_tokens = 0, or encode the text with ms-data, which records the tokenizer");
}

std::string sample(Engine& engine, const Settings& settings, const std::vector<std::int32_t>& prompt) {
  const std::unique_ptr<data::Tokenizer> tokenizer = sample_tokenizer(settings);
  std::vector<std::int32_t> text = prompt;
  generate(engine, settings.model.seq, prompt,
           {.max_tokens = settings.run.sample_tokens,
            .vocab = tokenizer->vocab_size(),
            .sampling = {.temperature = settings.run.sample_temperature},
            .seed = static_cast<std::uint64_t>(settings.train.seed)},
           [&](std::int32_t token) { text.push_back(token); });
  return printable(tokenizer->decode(text));
}

}  // namespace ms::train
