#include "data/batch_reader.h"

#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

namespace ms::data {
namespace {

constexpr BatchRing::Patience kCheckEvery{20};

}  // namespace

BatchReader::BatchReader(BatchRing& ring, int reader, int part, double timeout_s, std::function<void()> check)
    : ring_(ring), reader_(reader), part_(part), timeout_s_(timeout_s), check_(std::move(check)) {}

Batch BatchReader::next(const BatchId& id) {
  release();
  const double begin = monotonic_s();
  while (!ring_.wait_published(batch_, kCheckEvery)) {
    check_();
    if (monotonic_s() - begin < timeout_s_) continue;
    throw Error("data.timeout", Blame::storage,
                fmt::format("the tokens of step {} were not read within {} s", id.step, timeout_s_),
                "either the storage of the training data does not answer, or this node has no time for its process "
                "'ms-loader': 'ps -o stat,wchan,comm' shows D in the first case");
  }
  const BatchRing::Label& label = ring_.label(batch_);
  MS_ASSERT(label.id == id, "batch of step {} instead of step {}", label.id.step, id.step);
  const BatchRing::Part part = ring_.part(batch_++, part_);
  const std::int64_t seq = ring_.shape().seq, inputs = label.rows * seq;
  return {.tokens = {part.rows.data(), label.rows, seq, seq + 1},
          .targets = {part.rows.data() + 1, label.rows, seq, seq + 1},
          .starts = part.starts.first(part.starts.empty() ? 0 : static_cast<std::size_t>(inputs)),
          .patches = part.patches.first(static_cast<std::size_t>(inputs * ring_.shape().patch_size)),
          .digest = label.digest,
          .num_targets = label.num_targets};
}

void BatchReader::release() {
  if (batch_ > 0) ring_.release(reader_, batch_ - 1);
}

}  // namespace ms::data
