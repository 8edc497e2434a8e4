// Documents of a token file packed to samples of one length, for `ms-data pack`: no document is split over two samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ms::data {

// Best fit decreasing: the longest document first, each into the sample with the least room that holds it. Documents of
// one length keep their order, and so do samples of one room. Returns the documents of each sample, whose tokens are at
// most `seq` together. Every length is 1 to `seq`.
std::vector<std::vector<std::size_t>> best_fit(std::span<const std::int64_t> lengths, std::int64_t seq);

enum class TooLong : std::uint8_t { refuse, truncate, skip };

struct PackOptions {
  std::int64_t seq = 0;
  TooLong too_long = TooLong::refuse;
  std::int64_t buffer = 100'000;  // documents that are packed together
};

struct PackReport {
  std::int64_t num_samples = 0, num_documents = 0, num_tokens = 0;  // without padding
  std::int64_t num_padding = 0;
  // Each document counts once: as packed, skipped or ignored. A packed one may be truncated, too.
  std::int64_t num_too_long = 0, lost_tokens = 0;  // truncated or skipped; those ignored are not among them
  std::int64_t num_ignored_documents = 0;          // dropped, as the loss would count no token of them
  std::int64_t num_targets = 0;
};

// Writes the documents of `prefix` to `output` in samples of `seq` tokens, each filled up with the token that ends a
// document, and one such token behind them all, the target of the last. The loss ignores padding, and the first token
// of a document, which would follow the one before it. Documents of a file with a mask that have no target left are
// dropped. Error("data.long", user): a document has more tokens, under TooLong::refuse; "data.mask", user: no document
// has a target left; "data.packed", user: the file is packed already, or has no note; and those of merge().
PackReport pack(const std::string& prefix, const std::string& output, const PackOptions& options);

}  // namespace ms::data
