#include "ckpt/batch.h"

#include "base/error.h"

namespace ms::ckpt {
namespace {

constexpr std::size_t kAlign = 64;

std::size_t aligned(std::size_t size) { return (size + kAlign - 1) / kAlign * kAlign; }

}  // namespace

BatchReader::BatchReader(std::string checkpoint, const Manifest& manifest, std::vector<Piece> pieces,
                         std::int64_t budget_bytes, int threads)
    : checkpoint_(std::move(checkpoint)),
      index_(manifest),
      pieces_(std::move(pieces)),
      budget_bytes_(budget_bytes),
      threads_(threads) {}

std::span<const std::byte> BatchReader::next() {
  MS_ASSERT(next_ < pieces_.size(), "piece {} of {}", next_, pieces_.size());
  if (next_ == batch_end_) read_batch();
  const std::size_t i = next_++;
  return std::span(memory_).subspan(offsets_[i - batch_begin_], static_cast<std::size_t>(pieces_[i].size_bytes()));
}

void BatchReader::read_batch() {
  batch_begin_ = batch_end_;
  offsets_.clear();
  std::size_t used = 0;
  while (batch_end_ < pieces_.size()) {
    const std::size_t after = used + aligned(static_cast<std::size_t>(pieces_[batch_end_].size_bytes()));
    if (batch_end_ > batch_begin_ && after > static_cast<std::size_t>(budget_bytes_)) break;
    offsets_.push_back(used);
    used = after;
    ++batch_end_;
  }
  if (used > memory_.size()) {
    // A manifest may claim any shape: what the files do not hold is refused before memory is asked for.
    index_.plan({pieces_.begin() + static_cast<std::ptrdiff_t>(batch_begin_),
                 pieces_.begin() + static_cast<std::ptrdiff_t>(batch_end_)});
    memory_.resize(used);
  }
  std::vector<Want> wants;
  for (std::size_t i = batch_begin_; i < batch_end_; ++i) {
    wants.push_back({.piece = pieces_[i], .to = memory_.data() + offsets_[i - batch_begin_]});
  }
  load(checkpoint_, index_, wants, {.threads = threads_, .progress = {}});
}

}  // namespace ms::ckpt
