#include "train/run/generate.h"

#include <algorithm>

#include "base/rng.h"

namespace ms::train {

void generate(Engine& engine, std::int64_t seq, const std::vector<std::int32_t>& prompt, const GenerateOptions& options,
              const std::function<void(std::int32_t token)>& each) {
  MS_ASSERT(!prompt.empty(), "a prompt without a token");
  std::vector<std::int32_t> context(static_cast<std::size_t>(seq));
  std::int64_t length = std::min<std::int64_t>(std::ssize(prompt), seq);
  std::copy(prompt.end() - length, prompt.end(), context.begin());
  std::int64_t known = 0;  // tokens of the context that the model has seen where they are
  for (std::int64_t i = 0; i < options.max_tokens; ++i) {
    if (length == seq && seq > 1) {
      const std::int64_t keep = seq / 2;
      std::copy(context.end() - keep, context.end(), context.begin());
      length = keep, known = 0;
    }
    const double draw = uniform(options.seed, rng_key("sample"), static_cast<std::uint64_t>(i));
    const std::int32_t token = engine.next_token(context, length - 1, known, options.sampling, options.vocab, draw);
    if (std::ranges::find(options.stops, token) != options.stops.end()) return;
    each(token);
    known = length;
    if (length == seq) length = known = 0;  // a context of one token
    context[static_cast<std::size_t>(length++)] = token;
  }
}

}  // namespace ms::train
