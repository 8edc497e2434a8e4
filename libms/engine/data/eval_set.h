// Data sets to evaluate a model on: windows of a token file, of which each token but the first is predicted exactly
// once, the last window's too. Which windows there are depends on the file and the sequence length alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/image_file.h"
#include "data/token_file.h"

namespace ms::data {

struct EvalSource {
  std::string name, prefix;
  double part = 1;  // the last part of its tokens
  bool operator==(const EvalSource&) const = default;
};

// The sources of "NAME=PREFIX" entries; a "PREFIX" is called by its last component. Without entries those of the
// configuration: its validation files, or the parts of its training files that it holds out.
// Error("data.source", user): there are none, or two of one name.
std::vector<EvalSource> eval_sources(const std::vector<std::string>& entries, const DataConfig& config);

class EvalSet {
 public:
  // Opens the files. `most_windows` of them are evaluated, spread evenly; 0: all. Error("data.short", user): it has
  // fewer than two tokens; "data.packed", user: its samples have another length; "data.mask", user: the loss ignores
  // all that is evaluated.
  // Images are read in patches of `patch` pixels a side; Error("data.image", user): its are of another size.
  EvalSet(const EvalSource& source, std::int64_t seq, std::int64_t vocab_size, std::int64_t most_windows,
          std::int64_t patch = 0);

  const EvalSource& source() const { return source_; }
  std::int64_t windows() const { return windows_; }
  std::int64_t seq() const { return seq_; }
  std::size_t patch_size() const { return static_cast<std::size_t>(image::patch_size(patch_)); }  // numbers of a patch
  std::int64_t predictions() const;  // tokens of all windows that are predicted and not ignored by the loss
  // The token that window `index` begins with.
  std::int64_t begin_of(std::int64_t index) const;

  static constexpr std::int32_t kNoTarget = -1;
  // Copies the window from token `begin` on: seq + 1 tokens, as a row of inputs and, one token later, targets.
  // They are marked as target_mask.h says; kNoTarget is what lies behind the end. `starts`, if not empty, get the
  // positions at which the inputs' documents begin, and `patches` those of the inputs. Error("data.vocab", user): a
  // token is not below the vocabulary's size.
  void read(std::int64_t begin, std::span<std::int32_t> row, std::span<std::int32_t> starts = {},
            std::span<std::int8_t> patches = {}) const;
  // Asks the storage for that window, and does not wait for it.
  void prefetch(std::int64_t begin) const;

 private:
  std::int64_t row_size(std::int64_t begin) const { return std::min(seq_ + 1, range_.end - begin); }

  EvalSource source_;
  TokenFile file_;
  std::optional<ImageFile> images_;
  TokenRange range_;
  std::int64_t seq_, vocab_size_, patch_, all_windows_, windows_;
};

}  // namespace ms::data
