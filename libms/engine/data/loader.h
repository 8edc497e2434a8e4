// The loader: batches of token ids and targets for a run, in host memory. It opens the token files of the
// configuration, refuses what cannot be trained on, and fills rows of any step's batch; the caller chooses the rows.
// It does not change once reading has begun, so any thread may read through it. In a run one process of a node has one,
// and the ranks of the node read what that fills (loader_process.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/balance.h"
#include "data/batch.h"
#include "data/batch_source.h"
#include "data/config.h"
#include "data/image_file.h"
#include "data/note.h"
#include "data/sampler.h"
#include "data/token_file.h"

namespace ms::data {

// The last part of a file's tokens, `part` of all: what is held out from training. It begins with a whole sample of
// `sample` tokens, where documents are packed to such.
TokenRange last_part(const TokenFile& file, double part, std::int64_t sample = 1);
// Throws Error("data.mask", user) where the loss ignores all tokens.
void check_targets(const TokenFile& file);
// Throws Error("data.vocab", user) where a token, read from position `begin` on, is not below `vocab_size`.
void check_vocab(const TokenFile& file, std::int64_t begin, std::span<const std::int32_t> tokens,
                 std::int64_t vocab_size);

// Writes for each token from position `begin` on where its document begins, as a position among them; no less than 0.
// All of them are in the file.
void document_starts(const TokenFile& file, std::int64_t begin, std::span<std::int32_t> starts);

// Where a sample begins.
struct SampleOrigin {
  std::string prefix;
  std::int64_t token = 0;  // its position in the file
  bool begins_document = false;
};

class Loader final : public BatchSource {
 public:
  // Errors, all of blame user unless a file is damaged: "data.train" no file is named; "data.short" too few tokens for
  // one sample; "data.vocab" a token id is not below `vocab_size` (that of the file's note, and a bounded part of each
  // file, are looked at here, the rest as it is read); "data.source", "data.weight" a wrong entry; "data.mask" the loss
  // ignores all tokens of a file; "data.packed" a file is packed to samples of another length; "data.image" a file has
  // images in patches of another size; and those of TokenFile and ImageFile.
  Loader(const DataConfig& config, BatchShape shape, std::int64_t vocab_size, std::uint64_t seed);

  // A step's plan: which window is which sample of the global batch of `step`, or validation sample `index` of `total`
  // that are spread evenly over the held-out tokens. Pure functions of the seed and the arguments; they read no file.
  Window window(std::int64_t step, std::int64_t sample) const;
  Window validation_window(std::int64_t index, std::int64_t total) const;
  void prefetch(std::span<const Window> windows) const override;
  // Throws Error("data.vocab", user), and as of TokenFile and ImageFile.
  void read(const Window& window, const RowMemory& to) const override;

  std::string facts() const override;  // DataFacts
  void begin(const LoaderTask& task) override;
  BatchPlan plan(const LoaderTask& task, const BatchId& id) const override;
  std::size_t num_files() const override { return files_.size(); }

  // Samples [first_sample, first_sample + count) of the global batch of `step`, as rows of seq + 1 tokens, marked as
  // target_mask.h says: a row has its inputs and, one token later, its targets. `starts`, if wanted, are the positions
  // in the row at which the inputs' documents begin, count x seq of them. A pure function of the files, the seed and
  // the arguments.
  void fill(std::int64_t step, std::int64_t first_sample, std::int64_t count, std::int32_t* rows,
            std::int32_t* starts = nullptr) const;

  // Returns which sample of the global batch of `step` each of its rows is: dp rank after dp rank, and in a rank
  // microbatch after microbatch. In the run's order, or balanced, under [data] reset_attention and balance. Reads the
  // index alone.
  std::vector<std::int64_t> rows(std::int64_t step, const Division& division) const;
  // Returns attention_work() of each sample of the global batch of `step`, in the run's order.
  std::vector<double> attention_work(std::int64_t step) const;

  // Returns the digest of all samples of the global batch of `step`, for the chain. Reads no file.
  std::uint64_t digest(std::int64_t step) const;

  // Where sample `sample` of the global batch of `step` comes from.
  SampleOrigin origin(std::int64_t step, std::int64_t sample) const;

  // Rows [first, first + count) of `total` validation samples that are spread evenly over the held-out tokens. The same
  // for every step, and distinct while total <= num_validation_samples().
  void fill_validation(std::int64_t first, std::int64_t count, std::int64_t total, std::int32_t* rows,
                       std::int32_t* starts = nullptr) const;
  // Whether the loss ignores tokens of a file.
  bool has_mask() const { return std::ranges::any_of(files_, &TokenFile::has_mask); }
  // Whether a batch has starts: [data] reset_attention.
  bool has_starts() const { return has_starts_; }

  const BatchShape& shape() const { return shape_; }
  // Before anything is read: step `step` begins with sample `sample` of the run's order, and `skips` are left out.
  void start_at(std::int64_t step, std::int64_t sample, std::vector<Skip> skips = {});
  // Returns a hash of all that decides the order of samples, except the seed: names, sizes and weights of the training
  // files, the part held out, the sequence length, and the batch where weights change by step. Equal fingerprints mean
  // the same samples, as far as can be known without reading them all.
  const std::string& fingerprint() const { return fingerprint_; }
  // 0 where nothing is held out.
  std::int64_t num_validation_samples() const { return valid_->size(); }
  // Returns how many targets of `total` validation samples the loss does not ignore. Reads the index alone.
  std::int64_t num_validation_targets(std::int64_t total) const {
    return count_targets(total, [&](std::int64_t i) { return validation_window(i, total); });
  }

 private:
  // Opens a token file and returns what its documents are packed to, 1 if they are not.
  std::int64_t open(const std::string& prefix, std::optional<std::pair<std::string, Note>>& first_note);
  void check_packing(const Note& note, const std::string& prefix) const;
  void check_vocab_of(const TokenFile& file) const;
  std::int64_t count_targets(std::int64_t samples, const std::function<Window(std::int64_t)>& window_of) const;

  BatchShape shape_;
  std::int64_t vocab_size_;
  bool has_starts_, is_balanced_;
  std::vector<TokenFile> files_;
  std::vector<std::optional<ImageFile>> images_;  // of these
  std::vector<WeightStage> stages_;
  std::optional<Sampler> train_;
  std::optional<WindowPool> valid_;
  std::string fingerprint_;
};

}  // namespace ms::data
